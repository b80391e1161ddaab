"""How to reach the API server, from the pod's service account or from a kubeconfig."""

import ssl
from collections.abc import Sequence
from typing import Any

import aiohttp
import kopf
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from queue_operator.domain.errors import Unauthenticated


class Credentials:
    """Address, certificates and token; an expiring token is read again when it is due."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration

    @classmethod
    def load(cls, kubeconfig: str | None = None, context: str | None = None) -> "Credentials":
        """From the named file or context, else the pod's service account, else KUBECONFIG.

        Raises Unauthenticated when there is none of them.
        """
        configuration = kubernetes_client.Configuration()
        try:
            if kubeconfig is None and context is None and _in_cluster(configuration):
                return cls(configuration)
            kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, context=context, client_configuration=configuration
            )
        except kubernetes_config.ConfigException as error:
            raise Unauthenticated(
                f"no way to the Kubernetes API: {error}; run in a pod, set KUBECONFIG, "
                "or turn the controller off with QUEUE_OPERATOR_CONTROLLER__ENABLED=false"
            ) from None
        return cls(configuration)

    @property
    def server(self) -> str:
        return str(self._configuration.host)

    def authorization(self) -> str | None:
        """The Authorization header's value, None with client certificates."""
        found: str | None = self._configuration.get_api_key_with_prefix("BearerToken")
        return found or self._configuration.get_api_key_with_prefix("authorization")

    def ssl_context(self) -> ssl.SSLContext:
        configuration = self._configuration
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def for_kopf(self, traces: Sequence[aiohttp.TraceConfig] = ()) -> kopf.AiohttpSession:
        """A session of kopf's own, which it closes; `traces` see its requests."""
        authorization = self.authorization()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self.ssl_context()),
            headers={"Authorization": authorization} if authorization else None,
            trace_configs=list(traces),
        )
        return kopf.AiohttpSession(server=self.server, aiohttp_session=session)


def _in_cluster(configuration: Any) -> bool:
    try:
        kubernetes_config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    except kubernetes_config.ConfigException:
        return False
    return True
