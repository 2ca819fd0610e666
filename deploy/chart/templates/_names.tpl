{{- /* Names, labels and images, as all templates use them. */ -}}

{{- define "escher.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "escher.labels" -}}
app.kubernetes.io/name: escher
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* What selects the pods of a component: context and component. */ -}}
{{- define "escher.selector" -}}
app.kubernetes.io/name: escher
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* The name of an image: its values, where they stand in values.yaml, and the default of its tag. */ -}}
{{- define "escher.image" -}}
{{- $image := index . 0 }}
{{- $registry := required (printf "%s.registry is to say where your nodes pull %s from" (index . 1) $image.repository) $image.registry }}
{{- $name := printf "%s/%s" (trimSuffix "/" $registry) $image.repository }}
{{- if $image.digest }}{{ printf "%s@%s" $name $image.digest }}{{ else }}{{ printf "%s:%s" $name ($image.tag | default (index . 2)) }}{{ end }}
{{- end }}

{{- define "escher.priorityClass" -}}
{{ .Values.priorityClass.name | default (ternary (include "escher.name" .) "" .Values.priorityClass.create) }}
{{- end }}

{{- define "escher.host" -}}
{{ include "escher.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "escher.marks" -}}
{{- $mark := .Values.markPods | toString }}
{{- if eq $mark "auto" }}{{ semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version | ternary "true" "" }}{{ else if eq $mark "true" }}true{{ end }}
{{- end }}

{{- /* The part of a pod's spec that service, scheduler and cleanup share. */ -}}
{{- define "escher.placement" -}}
# By the cluster's own scheduler: who starts Escher must not wait for Escher.
schedulerName: default-scheduler
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Replicas on different nodes and zones: context and component. */ -}}
{{- define "escher.spread" -}}
{{- $ := index . 0 }}
{{- $component := index . 1 }}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ eq . "kubernetes.io/hostname" | ternary $.Values.spread.whenUnsatisfiable "ScheduleAnyway" }}
    labelSelector:
      matchLabels: {{- include "escher.selector" (list $ $component) | nindent 8 }}
{{- end }}
{{- end }}

{{- define "escher.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Without what distributions add to it. */ -}}
{{- define "escher.kubernetesVersion" -}}
{{- $version := semver .Capabilities.KubeVersion.Version }}
{{- printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch }}
{{- end }}
