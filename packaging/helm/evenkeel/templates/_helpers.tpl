{{/* Labels of every object. */}}
{{- define "evenkeel.labels" -}}
app.kubernetes.io/part-of: evenkeel
{{- range $key, $value := .Values.labels }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Labels of the objects and pods of a component: (dict "name" NAME "of" $). */}}
{{- define "evenkeel.component" -}}
app.kubernetes.io/name: {{ .name }}
{{ include "evenkeel.labels" .of }}
{{- end }}

{{- define "evenkeel.image" -}}
{{ .image.repository }}:{{ .image.tag | default .of.Chart.AppVersion }}
{{- end }}

{{/* The Secret with the recommender's certificate. */}}
{{- define "evenkeel.tlsSecret" -}}
{{ .Values.tls.secret | default "evenkeel-recommender-tls" }}
{{- end }}

{{/* Names by which the recommender is called: a JSON list. */}}
{{- define "evenkeel.hosts" -}}
{{- $service := printf "evenkeel-recommender.%s" .Release.Namespace -}}
{{ list "evenkeel-recommender" $service (printf "%s.svc" $service) (printf "%s.svc.%s" $service .Values.recommender.clusterDomain) | toJson }}
{{- end }}

{{/* Addresses to which agents stream, as TOML: of the Service, or of each recommender. */}}
{{- define "evenkeel.streams" -}}
{{- $at := dict "namespace" .Release.Namespace "addresses" list -}}
{{- range $number := until (int .Values.recommender.replicas) -}}
{{- $host := printf "evenkeel-recommender-%d.evenkeel-recommender-pair.%s.svc" $number $at.namespace -}}
{{- $_ := set $at "addresses" (append $at.addresses (printf "https://%s:9520" $host | quote)) -}}
{{- end -}}
{{- if gt (int .Values.recommender.replicas) 1 -}}
[{{ join ", " $at.addresses }}]
{{- else -}}
{{ printf "https://evenkeel-recommender.%s.svc:9520" $at.namespace | quote }}
{{- end -}}
{{- end }}

{{/* The size of the recommender's storage in MiB. */}}
{{- define "evenkeel.storageMiB" -}}
{{- $size := .Values.recommender.storage.size -}}
{{- $units := dict "Mi" 1 "Gi" 1024 "Ti" 1048576 -}}
{{- mul (regexFind "^[0-9]+" $size | int64) (get $units (regexFind "[A-Z]i$" $size) | default 0) -}}
{{- end }}

{{/* A part of it, in percent: (dict "percent" N "of" $). */}}
{{- define "evenkeel.part" -}}
{{- div (mul (include "evenkeel.storageMiB" .of | int64) .percent) 100 -}}
{{- end }}

{{/* A rule's peers of the recommender: nodes, and whoever else is named. */}}
{{- define "evenkeel.peers" -}}
{{- range .Values.networkPolicy.nodeCIDRs }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- if .Values.webhook.enabled }}
- podSelector: {matchLabels: {app.kubernetes.io/name: evenkeel-webhook, app.kubernetes.io/part-of: evenkeel}}
{{- end }}
{{- with .Values.networkPolicy.from }}
{{ toYaml . }}
{{- end }}
{{- end }}
