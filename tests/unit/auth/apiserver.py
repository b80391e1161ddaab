"""Reviews by whatever listens at an address."""

from pathlib import Path

import yaml

from queue_operator.auth.kubernetes import KubernetesReviews, connect


def reviews_by(url: str, folder: Path) -> KubernetesReviews:
    """Reviews by the server at `url`; `folder` keeps the kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    context = {"cluster": "here", "user": "me"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {"token": "none"}}],
                "contexts": [{"name": "here", "context": context}],
                "current-context": "here",
            }
        )
    )
    return connect(str(kubeconfig))
