{{/* The server's configuration file, as YAML. */}}
{{- define "tidemill.settings" -}}
{{- $v := .values -}}
{{- $settings := deepCopy $v.server -}}
{{- $_ := set $settings "host" "0.0.0.0" -}}
{{- $_ := set $settings "http_port" 8000 -}}
{{- $_ := set $settings "grpc_port" 8001 -}}
{{- $_ := set $settings "drain_window_seconds" $v.drain.windowSeconds -}}
{{- $_ := set $settings "drain_limit_seconds" $v.drain.limitSeconds -}}
{{- if $v.tls.existingSecret -}}
{{- $_ := set $settings "tls_certificate" "/etc/tidemill-tls/tls.crt" -}}
{{- $_ := set $settings "tls_key" "/etc/tidemill-tls/tls.key" -}}
{{- if $v.tls.clientCertificates -}}
{{- $_ := set $settings "tls_client_ca" "/etc/tidemill-tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if $v.apiKeys.existingSecret -}}
{{- $_ := set $settings "keys_file" "/etc/tidemill-keys/keys.yaml" -}}
{{- end -}}
{{- if not (hasKey $settings "log_format") -}}
{{- $_ := set $settings "log_format" "json" -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* A value as text; whole numbers come as floats, which would be written as 1e+06. */}}
{{- define "tidemill.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* Variables by name, so that one of the user's replaces one of ours: two of one name are refused by the cluster. */}}
{{- define "tidemill.env" -}}
{{- $env := dict "HOME" "/tmp" "TIDEMILL_CACHE" "/cache" -}}
{{- if gt (int .values.gpu.count) 0 -}}
{{- $env = merge $env (dict "NVIDIA_VISIBLE_DEVICES" "all" "NVIDIA_DRIVER_CAPABILITIES" "compute,utility") -}}
{{- end -}}
{{- $env = mergeOverwrite $env (deepCopy .values.env) -}}
{{- range $name := keys $env | sortAlpha }}
{{- $value := index $env $name }}
- name: {{ $name }}
{{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
{{- else }}
  value: {{ include "tidemill.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tidemill.envFrom" -}}
{{- with .values.credentials.existingSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- with .values.envFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}
