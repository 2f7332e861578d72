{{- define "flatwake.name" -}}
{{- if contains "flatwake" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-flatwake" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "flatwake.operator" -}}
{{ include "flatwake.name" . }}-operator
{{- end }}

{{- define "flatwake.account" -}}
{{- default (include "flatwake.operator" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "flatwake.selector" -}}
app.kubernetes.io/name: flatwake-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "flatwake.labels" -}}
{{ include "flatwake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What the operator does in the namespaces that it looks after. */}}
{{- define "flatwake.rules" -}}
# Our own resource is read; only its status is written.
- apiGroups: [flatwake.dev]
  resources: [inferenceservers]
  verbs: [list, watch]
- apiGroups: [flatwake.dev]
  resources: [inferenceservers/status]
  verbs: [patch]
# Children. Server-side apply is patch, and create where there is none yet.
- apiGroups: [""]
  resources: [serviceaccounts, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
# A volume holds the model's files: only its server's end deletes it.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
# Where their APIs exist.
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch]
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [get, list, watch, create, patch, delete]
# Pods say how far they are, and one with another model than the others is deleted once.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
# Flips are told as events; events of a pod whose containers don't start say why.
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end }}
