{{/* What the schema cannot say: one message for the first fault. */}}
{{- define "tidemill.validate" -}}
{{- $v := .values -}}
{{- $where := ternary (printf "deployments.%s: " .name) "" (ne .name "") -}}
{{- $needed := add $v.drain.windowSeconds $v.drain.limitSeconds $v.drain.preStopSeconds 5 | int -}}
{{- if lt (int $v.drain.terminationGracePeriodSeconds) $needed -}}
{{- fail (printf "%sdrain.terminationGracePeriodSeconds is %d and must be at least %d: preStopSeconds + windowSeconds + limitSeconds + 5, or requests are cut off" $where (int $v.drain.terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- if and $v.autoscaling.enabled $v.keda.enabled -}}
{{- fail (printf "%sautoscaling.enabled and keda.enabled exclude each other: both would set the replicas" $where) -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (not $v.autoscaling.cpu) (not $v.autoscaling.queueDepth) -}}
{{- fail (printf "%sautoscaling needs autoscaling.cpu or autoscaling.queueDepth" $where) -}}
{{- end -}}
{{- if and $v.keda.enabled (not $v.keda.serverAddress) -}}
{{- fail (printf "%skeda.serverAddress is needed: the address of Prometheus" $where) -}}
{{- end -}}
{{- if and $v.keda.enabled (not $v.keda.inflight) (not $v.keda.queueSeconds) -}}
{{- fail (printf "%skeda needs keda.inflight or keda.queueSeconds" $where) -}}
{{- end -}}
{{- if and (eq $v.models.source "fetch") (not $v.models.fetch) -}}
{{- fail (printf "%smodels.source is fetch and models.fetch is empty" $where) -}}
{{- end -}}
{{- if and (eq $v.models.source "image") (not $v.models.image.reference) -}}
{{- fail (printf "%smodels.source is image and models.image.reference is empty" $where) -}}
{{- end -}}
{{- if and (eq $v.models.source "none") (not $v.repositories) -}}
{{- fail (printf "%smodels.source is none and repositories is empty: there is nothing to serve" $where) -}}
{{- end -}}
{{- if and $v.tls.clientCertificates (not $v.tls.existingSecret) -}}
{{- fail (printf "%stls.clientCertificates needs tls.existingSecret" $where) -}}
{{- end -}}
{{- if and $v.tls.clientCertificates (ne $v.probes.type "exec") -}}
{{- fail (printf "%stls.clientCertificates needs probes.type exec: the kubelet has no certificate to show" $where) -}}
{{- end -}}
{{- range $key := list "host" "http_port" "grpc_port" "drain_window_seconds" "drain_limit_seconds" "tls_certificate" "tls_key" "tls_client_ca" "keys_file" -}}
{{- if hasKey $v.server $key -}}
{{- fail (printf "%sserver.%s is decided by the chart; see service, drain, tls and apiKeys" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
