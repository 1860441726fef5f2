{{/* Names and labels. A "scope" is a dict: root (the chart's context), name (of the deployment, "" if it is the only
one), values (the chart's values with the deployment's own over them). */}}

{{- define "tidemill.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tidemill.scope.fullname" -}}
{{- $full := include "tidemill.fullname" .root -}}
{{- if .name -}}
{{- printf "%s-%s" $full .name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{- define "tidemill.release.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "tidemill.selector" -}}
{{ include "tidemill.release.selector" .root }}
app.kubernetes.io/component: {{ default "server" .name }}
{{- end -}}

{{- define "tidemill.release.labels" -}}
{{ include "tidemill.release.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidemill.labels" -}}
{{ include "tidemill.release.labels" .root }}
app.kubernetes.io/component: {{ default "server" .name }}
{{- end -}}

{{- define "tidemill.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidemill.serviceAccountName" -}}
{{- if .root.Values.serviceAccount.create -}}
{{- default (include "tidemill.fullname" .root) .root.Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .root.Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tidemill.image" -}}
{{- $image := .values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- $suffix := ternary "-gpu" "" (gt (int .values.gpu.count) 0) -}}
{{- printf "%s:%s" $image.repository (default (printf "%s%s" .root.Chart.AppVersion $suffix) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The names of the deployments as a JSON list under "names"; one without a name if none is given. */}}
{{- define "tidemill.deployments" -}}
{{- if .Values.kserve.enabled -}}
{{- dict "names" (list) | toJson -}}
{{- else if .Values.deployments -}}
{{- dict "names" (keys .Values.deployments | sortAlpha) | toJson -}}
{{- else -}}
{{- dict "names" (list "") | toJson -}}
{{- end -}}
{{- end -}}

{{/* The values of one deployment as JSON: arguments root, name. */}}
{{- define "tidemill.values" -}}
{{- $values := deepCopy (omit .root.Values "deployments") -}}
{{- if .name -}}
{{- $values = mergeOverwrite $values (deepCopy (index .root.Values.deployments .name | default dict)) -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}
