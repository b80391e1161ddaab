{{/*
Puts in what the values lack, as each template does first: `helm upgrade --reuse-values` keeps those
of an earlier chart, which did not know all of today's. What is there stays, also false, empty or
null; what is Kubernetes' own is taken whole or not at all, so that a part of it can be taken away.
*/}}
{{- define "queue-operator.prepare" -}}
{{- include "queue-operator.fill" (dict "into" .Values "from" (.Files.Get "files/defaults.yaml" | fromYaml)) }}
{{- end }}

{{- define "queue-operator.fill" -}}
{{- $whole := list "resources" "podSecurityContext" }}
{{- range $name, $value := .from }}
{{- if not (hasKey $.into $name) }}
{{- $_ := set $.into $name $value }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $.into $name)) (not (has $name $whole)) }}
{{- include "queue-operator.fill" (dict "into" (get $.into $name) "from" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "queue-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "queue-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "queue-operator.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "queue-operator.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Cluster-scoped names carry the namespace, so that two releases of one name can live side by side. */}}
{{- define "queue-operator.clusterName" -}}
{{- if eq .Release.Namespace (include "queue-operator.fullname" .) }}
{{- .Release.Namespace }}
{{- else }}
{{- printf "%s:%s" .Release.Namespace (include "queue-operator.fullname" .) }}
{{- end }}
{{- end }}

{{- define "queue-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "queue-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "queue-operator.labels" -}}
{{ include "queue-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: queue-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "queue-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "queue-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "queue-operator.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The served namespaces as a JSON list; empty means the whole cluster. */}}
{{- define "queue-operator.namespaces" -}}
{{- if .Values.watchNamespaces }}
{{- .Values.watchNamespaces | uniq | toJson }}
{{- else if .Values.rbac.clusterWide }}
{{- list | toJson }}
{{- else }}
{{- list .Release.Namespace | toJson }}
{{- end }}
{{- end }}

{{/* Percent-encoding for every part of a URL: urlquery writes a space as a plus sign, which libpq does not undo. */}}
{{- define "queue-operator.escaped" -}}
{{- . | toString | urlquery | replace "+" "%20" }}
{{- end }}

{{- define "queue-operator.dsn" -}}
{{- $db := .Values.database }}
{{- if $db.dsn }}
{{- $db.dsn }}
{{- else }}
{{- $login := include "queue-operator.escaped" $db.user }}
{{- if $db.password }}
{{- $login = printf "%s:%s" $login (include "queue-operator.escaped" $db.password) }}
{{- end }}
{{- $host := $db.host }}
{{- if contains ":" $host }}
{{- $host = printf "[%s]" (trimAll "[]" $host) }}
{{- end }}
{{- $parameters := list }}
{{- range $name, $value := $db.parameters }}
{{- $parameters = append $parameters (printf "%s=%s" (include "queue-operator.escaped" $name) (include "queue-operator.escaped" $value)) }}
{{- end }}
{{- printf "postgresql://%s@%s:%d/%s" $login $host (int $db.port) (include "queue-operator.escaped" $db.name) }}
{{- if $parameters }}?{{ join "&" $parameters }}{{ end }}
{{- end }}
{{- end }}

{{- define "queue-operator.dsnSecretName" -}}
{{- default (printf "%s-database" (include "queue-operator.fullname" .)) .Values.database.existingSecret }}
{{- end }}

{{- define "queue-operator.tokensSecretName" -}}
{{- default (printf "%s-tokens" (include "queue-operator.fullname" .)) .Values.auth.existingSecret }}
{{- end }}

{{/* Refuses values that the schema cannot judge, because they depend on each other. */}}
{{- define "queue-operator.checkValues" -}}
{{- $db := .Values.database }}
{{- $ways := compact (list $db.existingSecret $db.dsn $db.host) | len }}
{{- if eq $ways 0 }}
{{- fail "No database is named. Set one of database.existingSecret, database.dsn and database.host." }}
{{- else if gt $ways 1 }}
{{- fail "The database is named more than once. Keep one of database.existingSecret, database.dsn and database.host." }}
{{- end }}
{{- if and $db.listenDsn $db.existingSecret }}
{{- fail "database.listenDsn would need a second Secret. Put the address into the one of database.existingSecret, and its key into database.existingSecretListenKey." }}
{{- end }}
{{- if and $db.existingSecretListenKey (not $db.existingSecret) }}
{{- fail "database.existingSecretListenKey is a key of database.existingSecret, which is not set. Use database.listenDsn." }}
{{- end }}
{{- if and (eq .Values.auth.mode "static") (not .Values.auth.tokens) (not .Values.auth.existingSecret) (not .Values.auth.tokensFileSecret) }}
{{- fail "auth.mode is static, but there are no tokens. Set auth.tokens, auth.existingSecret or auth.tokensFileSecret." }}
{{- end }}
{{- if and .Values.auth.tokensFileSecret (ne .Values.auth.mode "static") }}
{{- fail "auth.tokensFileSecret has static tokens, which auth.mode does not ask for. Set it to static." }}
{{- end }}
{{- if and .Values.controller.enabled (gt (int .Values.replicas) 1) }}
{{- fail "Each of the replicas would serve the custom resources. Keep replicas at 1, or set controller.enabled to false and serve the resources with another release, of one replica, on the same database." }}
{{- end }}
{{- if and .Values.tls.clientCaSecret (not .Values.tls.existingSecret) }}
{{- fail "tls.clientCaSecret asks clients for certificates, but the server has none. Set tls.existingSecret too." }}
{{- end }}
{{- if and .Values.auth.tokens .Values.auth.existingSecret }}
{{- fail "Static tokens are given twice. Keep one of auth.tokens and auth.existingSecret." }}
{{- end }}
{{- $linger := dig "metrics" "linger_s" "" (.Values.settings | default dict) | toString }}
{{- if and $linger (gt (addf (float64 $linger) 42.0) (float64 .Values.terminationGracePeriodSeconds)) }}
{{- fail (printf "settings.metrics.linger_s is %s, and the other parts may take 42 seconds to stop: the pod would be killed first. Set terminationGracePeriodSeconds, which is %v, to their sum at least." $linger .Values.terminationGracePeriodSeconds) }}
{{- end }}
{{- end }}

{{- define "queue-operator.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Values keep their JSON spelling, because Helm would print 1048576 as 1.048576e+06. */}}
{{- define "queue-operator.settingValue" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- define "queue-operator.databaseEnv" -}}
- name: QUEUE_OPERATOR_DATABASE__DSN
  valueFrom:
    secretKeyRef:
      name: {{ include "queue-operator.dsnSecretName" . }}
      key: {{ if .Values.database.existingSecret }}{{ .Values.database.existingSecretKey }}{{ else }}dsn{{ end }}
{{- end }}

{{/* What only those need who stay connected. */}}
{{- define "queue-operator.poolerEnv" -}}
- name: QUEUE_OPERATOR_DATABASE__POOLER
  value: {{ .Values.database.pooler | quote }}
{{- if or .Values.database.listenDsn .Values.database.existingSecretListenKey }}
- name: QUEUE_OPERATOR_DATABASE__LISTEN_DSN
  valueFrom:
    secretKeyRef:
      name: {{ include "queue-operator.dsnSecretName" . }}
      key: {{ default "listenDsn" .Values.database.existingSecretListenKey }}
{{- end }}
{{- end }}

{{- define "queue-operator.authEnv" -}}
- name: QUEUE_OPERATOR_AUTH__MODE
  value: {{ .Values.auth.mode }}
- name: QUEUE_OPERATOR_AUTH__AUDIENCE
  value: {{ .Values.auth.audience | quote }}
{{- if and (eq .Values.auth.mode "static") (or .Values.auth.tokens .Values.auth.existingSecret) }}
- name: QUEUE_OPERATOR_AUTH__TOKENS
  valueFrom:
    secretKeyRef:
      name: {{ include "queue-operator.tokensSecretName" . }}
      key: {{ if .Values.auth.existingSecret }}{{ .Values.auth.existingSecretKey }}{{ else }}tokens{{ end }}
{{- end }}
{{- if .Values.auth.tokensFileSecret }}
- name: QUEUE_OPERATOR_AUTH__TOKENS_FILE
  value: {{ printf "/var/run/secrets/queue-operator-tokens/%s" .Values.auth.tokensFileKey | quote }}
{{- end }}
{{- end }}

{{- define "queue-operator.tokensFileMounts" -}}
{{- if .Values.auth.tokensFileSecret }}
- name: tokens-file
  mountPath: /var/run/secrets/queue-operator-tokens
  readOnly: true
{{- end }}
{{- end }}

{{- define "queue-operator.tokensFileVolumes" -}}
{{- if .Values.auth.tokensFileSecret }}
- name: tokens-file
  secret:
    secretName: {{ .Values.auth.tokensFileSecret }}
{{- end }}
{{- end }}

{{- define "queue-operator.webhooksEnv" -}}
- name: QUEUE_OPERATOR_WEBHOOKS__ENABLED
  value: {{ .Values.webhooks.enabled | quote }}
- name: QUEUE_OPERATOR_WEBHOOKS__ALLOW
  value: {{ .Values.webhooks.allow | toJson | quote }}
{{- if .Values.webhooks.secretsSecret }}
- name: QUEUE_OPERATOR_WEBHOOKS__SECRETS_DIR
  value: /var/run/secrets/queue-operator-webhooks
{{- end }}
{{- end }}

{{- define "queue-operator.webhooksMounts" -}}
{{- if .Values.webhooks.secretsSecret }}
- name: webhook-secrets
  mountPath: /var/run/secrets/queue-operator-webhooks
  readOnly: true
{{- end }}
{{- end }}

{{- define "queue-operator.webhooksVolumes" -}}
{{- if .Values.webhooks.secretsSecret }}
- name: webhook-secrets
  secret:
    secretName: {{ .Values.webhooks.secretsSecret }}
{{- end }}
{{- end }}

{{- define "queue-operator.tlsEnv" -}}
{{- if .Values.tls.existingSecret }}
- name: QUEUE_OPERATOR_GRPC__CERTIFICATE_FILE
  value: /var/run/secrets/queue-operator-tls/tls.crt
- name: QUEUE_OPERATOR_GRPC__KEY_FILE
  value: /var/run/secrets/queue-operator-tls/tls.key
{{- end }}
{{- if .Values.tls.clientCaSecret }}
- name: QUEUE_OPERATOR_GRPC__CLIENT_CA_FILE
  value: {{ printf "/var/run/secrets/queue-operator-client-ca/%s" .Values.tls.clientCaKey | quote }}
{{- end }}
{{- with .Values.tls.rest }}
{{- if .existingSecret }}
- name: QUEUE_OPERATOR_REST__CERTIFICATE_FILE
  value: /var/run/secrets/queue-operator-rest-tls/tls.crt
- name: QUEUE_OPERATOR_REST__KEY_FILE
  value: /var/run/secrets/queue-operator-rest-tls/tls.key
{{- end }}
{{- if .clientCaSecret }}
- name: QUEUE_OPERATOR_REST__CLIENT_CA_FILE
  value: {{ printf "/var/run/secrets/queue-operator-rest-client-ca/%s" .clientCaKey | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whole directories, not single files, so that the kubelet brings renewed ones. */}}
{{- define "queue-operator.tlsMounts" -}}
{{- if .Values.tls.existingSecret }}
- name: tls
  mountPath: /var/run/secrets/queue-operator-tls
  readOnly: true
{{- end }}
{{- if .Values.tls.clientCaSecret }}
- name: client-ca
  mountPath: /var/run/secrets/queue-operator-client-ca
  readOnly: true
{{- end }}
{{- if .Values.tls.rest.existingSecret }}
- name: rest-tls
  mountPath: /var/run/secrets/queue-operator-rest-tls
  readOnly: true
{{- end }}
{{- if .Values.tls.rest.clientCaSecret }}
- name: rest-client-ca
  mountPath: /var/run/secrets/queue-operator-rest-client-ca
  readOnly: true
{{- end }}
{{- end }}

{{- define "queue-operator.tlsVolumes" -}}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
{{- end }}
{{- if .Values.tls.clientCaSecret }}
- name: client-ca
  secret:
    secretName: {{ .Values.tls.clientCaSecret }}
{{- end }}
{{- if .Values.tls.rest.existingSecret }}
- name: rest-tls
  secret:
    secretName: {{ .Values.tls.rest.existingSecret }}
{{- end }}
{{- if .Values.tls.rest.clientCaSecret }}
- name: rest-client-ca
  secret:
    secretName: {{ .Values.tls.rest.clientCaSecret }}
{{- end }}
{{- end }}

{{- define "queue-operator.settingsEnv" -}}
{{- range $section, $fields := .Values.settings }}
{{- range $field, $value := $fields }}
- name: {{ printf "QUEUE_OPERATOR_%s__%s" $section $field | upper }}
  value: {{ include "queue-operator.settingValue" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* An id that is null is the cluster's to choose. */}}
{{- define "queue-operator.ids" -}}
{{- $ids := dict }}
{{- range $name, $id := .Values.podSecurityContext }}
{{- if not (kindIs "invalid" $id) }}
{{- $_ := set $ids $name $id }}
{{- end }}
{{- end }}
{{- with $ids }}
{{- toYaml . }}
{{- end }}
{{- end }}
