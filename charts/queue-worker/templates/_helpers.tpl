{{/*
Puts in what the values lack, as each template does first: `helm upgrade --reuse-values` keeps those
of an earlier chart, which did not know all of today's. What is there stays, also false, empty or
null; what is Kubernetes' own is taken whole or not at all, so that a part of it can be taken away.
`replicas` is not among them: without one an autoscaler owns the number.
*/}}
{{- define "queue-worker.prepare" -}}
{{- include "queue-worker.fill" (dict "into" .Values "from" (omit (.Files.Get "files/defaults.yaml" | fromYaml) "replicas")) }}
{{- end }}

{{- define "queue-worker.fill" -}}
{{- $whole := list "resources" "podSecurityContext" "strategy" }}
{{- range $name, $value := .from }}
{{- if not (hasKey $.into $name) }}
{{- $_ := set $.into $name $value }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $.into $name)) (not (has $name $whole)) }}
{{- include "queue-worker.fill" (dict "into" (get $.into $name) "from" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "queue-worker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Short enough that a pod's name, which is also its QueueWorker's, stays a label. */}}
{{- define "queue-worker.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else if contains (include "queue-worker.name" .) .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "queue-worker.name" .) | trunc 45 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "queue-worker.selectorLabels" -}}
app.kubernetes.io/name: {{ include "queue-worker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "queue-worker.labels" -}}
{{ include "queue-worker.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: queue-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "queue-worker.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "queue-worker.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Refuses values that the schema cannot judge, because they depend on each other. */}}
{{- define "queue-worker.checkValues" -}}
{{- if and .Values.tls.caConfigMap .Values.tls.caSecret }}
{{- fail "The operator's authority is named twice. Keep one of tls.caConfigMap and tls.caSecret." }}
{{- end }}
{{- if and .Values.tls.certificateSecret (not (or .Values.tls.caConfigMap .Values.tls.caSecret)) }}
{{- fail "tls.certificateSecret is for a connection with TLS. Set tls.caConfigMap or tls.caSecret too." }}
{{- end }}
{{- end }}

{{- define "queue-worker.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository .Values.image.tag }}
{{- end }}
{{- end }}

{{/* An id that is null is the cluster's to choose. */}}
{{- define "queue-worker.ids" -}}
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
