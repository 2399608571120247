{{/* A DaemonSet of the agent: (dict "name" NAME "mode" dry-run|enforce "of" $). */}}
{{- define "evenkeel.daemonSet" }}
{{- $agent := .of.Values.agent }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .of.Release.Namespace }}
  labels:
    {{- include "evenkeel.component" (dict "name" "evenkeel-agent" "of" .of) | nindent 4 }}
    evenkeel.dev/mode: {{ .mode }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: evenkeel-agent
      app.kubernetes.io/part-of: evenkeel
      evenkeel.dev/mode: {{ .mode }}
  updateStrategy:
    rollingUpdate:
      maxUnavailable: {{ $agent.maxUnavailable }}
  template:
    metadata:
      labels:
        {{- include "evenkeel.component" (dict "name" "evenkeel-agent" "of" .of) | nindent 8 }}
        evenkeel.dev/mode: {{ .mode }}
      annotations:
        # Pods are made anew when the configuration changes.
        evenkeel.dev/configuration: {{ concat (list $agent.sockets $agent.excludeNamespaces $agent.config) (gt (int .of.Values.recommender.replicas) 1 | ternary (list "pair") list) (ternary (list $agent.kubelet) list $agent.kubelet.enabled) | toJson | sha256sum | trunc 16 | quote }}
        {{- with $agent.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- with $agent.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .of.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      hostPID: true
      # Process events exist in the host's network namespace only.
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      serviceAccountName: evenkeel-agent
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 15
      {{- with $agent.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      nodeSelector:
        kubernetes.io/os: linux
        {{- with $agent.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if eq $agent.mode "by-label" }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - key: evenkeel.dev/mode
                    operator: {{ ternary "In" "NotIn" (eq .mode "enforce") }}
                    values: [enforce]
      {{- end }}
      {{- if eq .mode "dry-run" }}
      initContainers:
        # What an agent that enforced on this node left: it gets the originals back before this one looks.
        - name: restore
          image: {{ include "evenkeel.image" (dict "image" $agent.image "of" .of) }}
          imagePullPolicy: {{ $agent.image.pullPolicy | default "IfNotPresent" }}
          args: [restore]
          env:
            - {name: EVENKEEL_AGENT_MODE, value: enforce}
          {{- include "evenkeel.agentRights" . | nindent 10 }}
      {{- end }}
      containers:
        - name: agent
          image: {{ include "evenkeel.image" (dict "image" $agent.image "of" .of) }}
          imagePullPolicy: {{ $agent.image.pullPolicy | default "IfNotPresent" }}
          env:
            - {name: EVENKEEL_AGENT_MODE, value: {{ .mode }}}
            - name: EVENKEEL_AGENT_NODE__NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
          readinessProbe:
            exec:
              command: [/usr/bin/evenkeel, status, -o, json]
            periodSeconds: 10
            timeoutSeconds: 5
          {{- include "evenkeel.agentRights" . | nindent 10 }}
      volumes:
        - name: config
          configMap:
            name: evenkeel-agent
            {{- if $agent.config }}
            items:
              - {key: agent.toml, path: agent.toml}
              - {key: values.toml, path: agent.d/values.toml}
            {{- end }}
        # What the agent believes the recommender by, and the other way round.
        - name: recommender
          projected:
            defaultMode: 256 # 0400
            sources:
              - configMap: {name: {{ .of.Values.tls.caConfigMap }}, items: [{key: ca.crt, path: ca.crt}]}
              # kubernetes.audience of the recommender.
              - serviceAccountToken: {path: token, audience: evenkeel, expirationSeconds: 3600}
        {{- if $agent.kubelet.enabled }}
        # What it is believed by at its kubelet{{ if not $agent.kubelet.ca }}, and the other way round{{ end }}.
        - name: kubelet
          projected:
            defaultMode: 256 # 0400
            sources:
              {{- if not $agent.kubelet.ca }}
              - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
              {{- end }}
              - serviceAccountToken: {path: token, expirationSeconds: 3600}
        {{- with $agent.kubelet.ca }}
        - name: kubelet-ca
          hostPath: {path: {{ . }}, type: File}
        {{- end }}
        {{- end }}
        - name: state
          hostPath: {path: /var/lib/evenkeel/agent, type: DirectoryOrCreate}
        - name: run
          hostPath: {path: /run/evenkeel, type: DirectoryOrCreate}
        - name: proc
          hostPath: {path: /proc, type: Directory}
        - name: cgroup
          hostPath: {path: /sys/fs/cgroup, type: Directory}
        {{- range $at, $directory := include "evenkeel.runtimes" .of | fromJsonArray }}
        # Made empty where the runtime is another one.
        - name: runtime-{{ $at }}
          hostPath: {path: {{ $directory }}, type: DirectoryOrCreate}
        {{- end }}
        - name: kernel-log
          hostPath: {path: /dev/kmsg, type: CharDevice}
{{- end }}

{{/* The directories of the runtimes' sockets: a JSON list. */}}
{{- define "evenkeel.runtimes" -}}
{{- $directories := list -}}
{{- range .Values.agent.sockets -}}{{- $directories = append $directories (dir .) -}}{{- end -}}
{{- $directories | uniq | toJson -}}
{{- end }}

{{/* What containers of the agent may use and see: the same dry as enforcing, so that a dry run knows what would be refused. */}}
{{- define "evenkeel.agentRights" -}}
resources:
  {{- toYaml .of.Values.agent.resources | nindent 2 }}
securityContext:
  runAsUser: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    # Scores below 0, processes of other users, process events, ending what a policy ends, the kernel's log.
    add: [SYS_RESOURCE, DAC_OVERRIDE, NET_ADMIN, KILL, SYSLOG{{ if eq .of.Values.agent.parts "three-processes" }}, SETUID, SETGID{{ end }}]
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: config, mountPath: /etc/evenkeel, readOnly: true}
  - {name: recommender, mountPath: /var/run/secrets/evenkeel, readOnly: true}
  {{- if .of.Values.agent.kubelet.enabled }}
  - {name: kubelet, mountPath: /var/run/secrets/kubelet, readOnly: true}
  {{- if .of.Values.agent.kubelet.ca }}
  - {name: kubelet-ca, mountPath: /var/run/secrets/kubelet-ca.crt, readOnly: true}
  {{- end }}
  {{- end }}
  - {name: state, mountPath: /var/lib/evenkeel/agent}
  - {name: run, mountPath: /run/evenkeel}
  - {name: proc, mountPath: /host/proc}
  - {name: cgroup, mountPath: /host/sys/fs/cgroup}
  # The sockets' directories alone, not all of /run: mounted as directories, so that a runtime that is started again is found again.
  # Whoever can connect to a runtime is root on the node.
  {{- range $at, $directory := include "evenkeel.runtimes" .of | fromJsonArray }}
  - {name: runtime-{{ $at }}, mountPath: /host{{ $directory }}, readOnly: true}
  {{- end }}
  # Names the victims of OOM kills. A runtime whose device rules refuse it to a container that is not privileged leaves the kills
  # themselves: they are counted by the cgroups.
  - {name: kernel-log, mountPath: /dev/kmsg, readOnly: true}
{{- end }}
