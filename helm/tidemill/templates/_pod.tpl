{{- define "tidemill.pod" -}}
{{- $v := .values -}}
metadata:
  labels:
    {{- include "tidemill.labels" . | nindent 4 }}
    {{- with $v.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: server
    checksum/settings: {{ include "tidemill.settings" . | sha256sum }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "tidemill.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $v.drain.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "tidemill.podSecurity" . | nindent 4 }}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $v.schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  {{- with $v.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- include "tidemill.placement" . | nindent 2 }}
  {{- if or $v.extraInitContainers (eq $v.models.source "fetch") }}
  initContainers:
    {{- with $v.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if eq $v.models.source "fetch" }}
    {{- include "tidemill.fetch" . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    {{- include "tidemill.container" . | nindent 4 }}
    {{- with $v.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "tidemill.volumes" . | nindent 4 }}
{{- end -}}

{{- define "tidemill.podSecurity" -}}
{{- $context := deepCopy .values.podSecurityContext -}}
{{- if .values.openshift -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "tidemill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "tidemill.placement" -}}
{{- $v := .values -}}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := $v.tolerations -}}
{{- if and (gt (int $v.gpu.count) 0) $v.gpu.tolerate -}}
{{- $tolerations = append $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") -}}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $v.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $v.topologySpreadConstraints | nindent 2 }}
{{- else if $v.spread }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tidemill.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{- define "tidemill.fetch" -}}
{{- $v := .values -}}
- name: fetch
  image: {{ include "tidemill.image" . }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  args:
    - fetch
    - {{ $v.models.fetch | quote }}
    - --repository
    - /models
  env:
    {{- include "tidemill.env" . | trim | nindent 4 }}
  {{- with include "tidemill.envFrom" . | trim }}
  envFrom:
    {{- . | nindent 4 }}
  {{- end }}
  resources:
    requests: {cpu: 100m, memory: 256Mi}
    limits: {cpu: "1", memory: 1Gi}
  securityContext:
    {{- include "tidemill.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models}
    - {name: cache, mountPath: /cache}
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "tidemill.container" -}}
{{- $v := .values -}}
- name: server
  image: {{ include "tidemill.image" . }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  args:
    - serve
    {{- if ne $v.models.source "none" }}
    - /models
    {{- end }}
    {{- range $v.repositories }}
    - {{ . | quote }}
    {{- end }}
    - --config
    - /etc/tidemill/server.yaml
    {{- range $v.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  ports:
    - {name: http, containerPort: 8000, protocol: TCP}
    - {name: grpc, containerPort: 8001, protocol: TCP}
  env:
    {{- include "tidemill.env" . | trim | nindent 4 }}
  {{- with include "tidemill.envFrom" . | trim }}
  envFrom:
    {{- . | nindent 4 }}
  {{- end }}
  resources:
    {{- include "tidemill.resources" . | nindent 4 }}
  securityContext:
    {{- include "tidemill.containerSecurity" . | nindent 4 }}
  {{- include "tidemill.probes" . | nindent 2 }}
  {{- if gt (int $v.drain.preStopSeconds) 0 }}
  lifecycle:
    preStop:
      exec:
        command: [sleep, {{ $v.drain.preStopSeconds | toString | quote }}]
  {{- end }}
  volumeMounts:
    - {name: settings, mountPath: /etc/tidemill, readOnly: true}
    {{- if ne $v.models.source "none" }}
    - name: models
      mountPath: /models
      readOnly: true
      {{- with $v.models.subPath }}
      subPath: {{ . | quote }}
      {{- end }}
    {{- end }}
    - {name: cache, mountPath: /cache}
    - {name: tmp, mountPath: /tmp}
    {{- if $v.tls.existingSecret }}
    - {name: tls, mountPath: /etc/tidemill-tls, readOnly: true}
    {{- end }}
    {{- if $v.apiKeys.existingSecret }}
    - {name: keys, mountPath: /etc/tidemill-keys, readOnly: true}
    {{- end }}
    {{- if $v.sharedMemory }}
    - {name: shm, mountPath: /dev/shm}
    {{- end }}
    {{- with $v.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "tidemill.resources" -}}
{{- $resources := deepCopy .values.resources -}}
{{- if gt (int .values.gpu.count) 0 -}}
{{- $gpu := dict .values.gpu.resourceName (int .values.gpu.count) -}}
{{- $_ := set $resources "limits" (merge $gpu ($resources.limits | default dict)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "tidemill.probe" -}}
{{- if eq .values.probes.type "exec" }}
exec:
  command:
    - tidemill
    - health
    - {{ .which }}
    {{- if .values.tls.existingSecret }}
    - --url=https://127.0.0.1:8000
    - --insecure
    {{- if .values.tls.clientCertificates }}
    - --certificate=/etc/tidemill-tls/tls.crt
    - --certificate-key=/etc/tidemill-tls/tls.key
    {{- end }}
    {{- else }}
    - --url=http://127.0.0.1:8000
    {{- end }}
{{- else }}
httpGet:
  path: /v2/health/{{ .which }}
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" (ne .values.tls.existingSecret "") }}
{{- end }}
{{- end -}}

{{- define "tidemill.probes" -}}
{{- $p := .values.probes -}}
{{- $ready := include "tidemill.probe" (dict "values" .values "which" "ready") -}}
{{- $live := include "tidemill.probe" (dict "values" .values "which" "live") -}}
startupProbe:
  {{- $ready | nindent 2 }}
  periodSeconds: {{ $p.startup.periodSeconds }}
  failureThreshold: {{ max 1 (ceil (divf $p.startup.budgetSeconds $p.startup.periodSeconds)) | int }}
  timeoutSeconds: {{ $p.readiness.timeoutSeconds }}
readinessProbe:
  {{- $ready | nindent 2 }}
  {{- toYaml $p.readiness | nindent 2 }}
livenessProbe:
  {{- $live | nindent 2 }}
  {{- toYaml $p.liveness | nindent 2 }}
{{- end -}}

{{- define "tidemill.volumes" -}}
{{- $v := .values -}}
- name: settings
  configMap:
    name: {{ include "tidemill.scope.fullname" . }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
- name: cache
  {{- if $v.cache.existingClaim }}
  persistentVolumeClaim:
    claimName: {{ $v.cache.existingClaim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ $v.cache.sizeLimit }}
  {{- end }}
{{- if eq $v.models.source "claim" }}
- name: models
  persistentVolumeClaim:
    claimName: {{ default (printf "%s-models" (include "tidemill.fullname" .root)) $v.models.claim.existing }}
    {{- if $v.models.claim.existing }}
    readOnly: true
    {{- end }}
{{- else if eq $v.models.source "fetch" }}
- name: models
  emptyDir:
    sizeLimit: {{ $v.cache.sizeLimit }}
{{- else if eq $v.models.source "image" }}
- name: models
  image:
    reference: {{ $v.models.image.reference }}
    pullPolicy: {{ $v.models.image.pullPolicy }}
{{- end }}
{{- with $v.tls.existingSecret }}
- name: tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with $v.apiKeys.existingSecret }}
- name: keys
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with $v.sharedMemory }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ . }}}
{{- end }}
{{- with $v.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
