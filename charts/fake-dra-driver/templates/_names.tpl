{{- define "fake.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fake.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "fake.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "fake.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "fake.namespace" -}}
{{- $namespace := default .Release.Namespace .Values.namespaceOverride }}
{{- if and (eq $namespace "default") (not .Values.allowDefaultNamespace) }}
{{- fail "install into a namespace of its own (-n fake-system), or set allowDefaultNamespace" }}
{{- end }}
{{- $namespace }}
{{- end }}

{{- define "fake.account" -}}
{{- default (ternary (include "fake.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "fake.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "fake.identity" -}}
app.kubernetes.io/name: {{ include "fake.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fake.selector" -}}
{{- with .Values.selectorLabelsOverride }}
{{- toYaml . }}
{{- else }}
{{- include "fake.identity" . }}
{{- end }}
{{- end }}

{{- define "fake.labels" -}}
{{ include "fake.identity" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fake.node" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}
