"""Runs the chart through Helm's own code, as helm does, without a cluster.

    helm.py LIBRARY CHART NAMESPACE STEP...

LIBRARY is Helm's Go code as a shared library (of PyPI's helm-sdkpy; scripts/lib.sh, need_helm). Each STEP is a JSON object: {"install": VALUES},
{"upgrade": VALUES} or {"uninstall": null}. They act one after the other on an API server that keeps objects in memory, knows the kinds
below, runs nothing, and calls every job complete. Prints a JSON list with one entry a step: what Helm rendered, its hooks and notes, what was
made meanwhile, and every object that is there afterwards; where Helm refuses, its words as `error`.
"""

import ctypes
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse

# Group, version, plural, kind, whether it has namespaces.
KINDS = [
    ("", "v1", "namespaces", "Namespace", False),
    ("", "v1", "nodes", "Node", False),
    ("", "v1", "configmaps", "ConfigMap", True),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True),
    ("", "v1", "pods", "Pod", True),
    ("", "v1", "secrets", "Secret", True),
    ("", "v1", "serviceaccounts", "ServiceAccount", True),
    ("", "v1", "services", "Service", True),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
    ("apps", "v1", "daemonsets", "DaemonSet", True),
    ("apps", "v1", "deployments", "Deployment", True),
    ("apps", "v1", "statefulsets", "StatefulSet", True),
    ("batch", "v1", "jobs", "Job", True),
    ("coordination.k8s.io", "v1", "leases", "Lease", True),
    ("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor", True),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", True),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False),
]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Store:
    """Objects by collection, namespace and name, and what was made in order."""

    def __init__(self):
        self.lock = threading.Lock()
        self.objects = {}
        self.made = []
        self.version = 1

    def put(self, key, body):
        self.version += 1
        old = self.objects.get(key)
        metadata = body.setdefault("metadata", {})
        metadata["uid"] = old["metadata"]["uid"] if old else f"00000000-0000-4000-8000-{self.version:012x}"
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        if key[1]:
            metadata["namespace"] = key[1]
        if body.get("kind") == "Job":
            done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            body["status"] = {"succeeded": 1, "conditions": [done], "startTime": "2026-01-01T00:00:00Z",
                              "completionTime": "2026-01-01T00:00:00Z"}
        self.objects[key] = body
        if not old:
            self.made.append(name_of(body))
        return body


def name_of(body):
    metadata = body["metadata"]
    return "/".join(part for part in (body["kind"], metadata.get("namespace"), metadata["name"]) if part)


def groups():
    """The groups beside the core one, each with its version."""
    for group, version in sorted({(group, version) for group, version, *_ in KINDS if group}):
        known = {"groupVersion": f"{group}/{version}", "version": version}
        yield {"name": group, "versions": [known], "preferredVersion": known}


def discovery(path):
    if path == "/version":
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.2"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups())}
    resources = [
        {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": VERBS}
        for group, version, plural, kind, namespaced in KINDS
        if path == (f"/apis/{group}/{version}" if group else f"/api/{version}")
    ]
    if not resources:
        return None
    version = path.split("/", 2)[2]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as an API server does, of what the store has."""

    protocol_version = "HTTP/1.1"
    store = Store()

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status, reason, message):
        self.answer(status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                             "message": message, "code": status, "details": {}})

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")

    def parsed(self):
        """The kind, where it is listed, namespace and name that the path has; None for no object."""
        url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(url.query))
        parts = url.path.strip("/").split("/")
        group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[2:])
        namespace = ""
        if len(parts) > 3 and parts[1] == "namespaces":
            namespace, parts = parts[2], [parts[0], *parts[3:]]
        if len(parts) < 2:
            return None
        kind = next((kind for kind in KINDS if (kind[0], kind[1], kind[2]) == (group, parts[0], parts[1])), None)
        return kind and (kind, parts[1] + "." + group, namespace, parts[2] if len(parts) > 2 else "")

    def do_GET(self):
        named = self.parsed()
        if self.path.startswith("/openapi/v2"):
            # An empty document of protobuf, which has no schemas: fields are checked elsewhere.
            self.send_response(200)
            self.send_header("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if named is None:
            found = discovery(urllib.parse.urlsplit(self.path).path)
            return self.answer(200, found) if found else self.refuse(404, "NotFound", "not found")
        (group, version, _, kind, _), collection, namespace, name = named
        with self.store.lock:
            if name:
                found = self.store.objects.get((collection, namespace, name))
                return self.answer(200, found) if found else self.gone(name)
            all_of = [body for key, body in self.store.objects.items()
                      if key[0] == collection and namespace in ("", key[1])]
            seen = str(self.store.version)
        version = f"{group}/{version}" if group else version
        if self.query.get("watch") in ("true", "1"):
            return self.watch(kind, version, all_of, seen)
        self.answer(200, {"kind": kind + "List", "apiVersion": version, "metadata": {"resourceVersion": seen},
                          "items": all_of})

    def watch(self, kind, version, all_of, seen):
        """What there is, and nothing after it."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        metadata = {"resourceVersion": seen, "annotations": {"k8s.io/initial-events-end": "true"}}
        events = [{"type": "ADDED", "object": body} for body in all_of]
        events.append({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": version, "metadata": metadata}})
        if self.query.get("sendInitialEvents") == "true":
            self.wfile.write("".join(json.dumps(event) + "\n" for event in events).encode())
        self.wfile.flush()
        self.rfile.read(1)
        self.close_connection = True

    def gone(self, name):
        self.refuse(404, "NotFound", f'"{name}" not found')

    def do_POST(self):
        body, named = self.body(), self.parsed()
        if named is None:
            return self.refuse(404, "NotFound", "the server could not find the requested resource")
        key = (named[1], named[2], body["metadata"]["name"])
        with self.store.lock:
            if key in self.store.objects:
                return self.refuse(409, "AlreadyExists", f'"{key[2]}" already exists')
            self.answer(201, self.store.put(key, body))

    def changed(self, change, makes=False):
        named = self.parsed()
        key = named and named[1:]
        with self.store.lock:
            old = self.store.objects.get(key)
            if old is None and not makes:
                return self.gone(key and key[2])
            self.answer(200, self.store.put(key, change(old)))

    def do_PUT(self):
        body = self.body()
        self.changed(lambda _: body)

    def do_PATCH(self):
        patch = self.body()

        def merged(old, new):
            if not isinstance(new, dict):
                return new
            result = dict(old) if isinstance(old, dict) else {}
            for name, value in new.items():
                if value is None or name.startswith("$"):
                    result.pop(name, None)
                else:
                    result[name] = merged(result.get(name), value)
            return result

        applies = self.headers.get("Content-Type", "").startswith("application/apply-patch")
        self.changed(lambda old: merged(old, patch), makes=applies)

    def do_DELETE(self):
        self.body()
        named = self.parsed()
        with self.store.lock:
            found = self.store.objects.pop(named and named[1:], None)
        self.answer(200, found) if found else self.gone(named and named[3])


class Helm:
    """The library, at this API server."""

    def __init__(self, library, namespace, url, scratch):
        self.library = ctypes.CDLL(library)
        self.library.helm_sdkpy_last_error.restype = ctypes.c_char_p
        cluster = {"name": "c", "cluster": {"server": url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}
        kubeconfig = os.path.join(scratch, "kubeconfig")
        with open(kubeconfig, "w") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
                       "contexts": [context], "users": [{"name": "u", "user": {"token": "t"}}]}, file)
        self.handle = ctypes.c_ulonglong()
        self.checked(self.library.helm_sdkpy_config_create(
            namespace.encode(), kubeconfig.encode(), None, b"{}", ctypes.byref(self.handle)))

    def checked(self, status):
        if status != 0:
            raise RuntimeError((self.library.helm_sdkpy_last_error() or b"no reason given").decode())

    def act(self, verb, chart, values):
        """Install or upgrade; the release as Helm stores it."""
        result = ctypes.c_char_p()
        options = {"create_namespace": False, "wait": False, "timeout_seconds": 60, "disable_openapi_validation": True,
                   "server_side_apply": "false"}
        call = getattr(self.library, f"helm_sdkpy_{verb}")
        self.checked(call(self.handle, b"evenkeel", chart.encode(), json.dumps(values or {}).encode(), b"",
                          json.dumps(options).encode(), ctypes.byref(result)))
        return json.loads(result.value)

    def uninstall(self):
        result = ctypes.c_char_p()
        self.checked(self.library.helm_sdkpy_uninstall(self.handle, b"evenkeel", 0, 60, ctypes.byref(result)))


def taken(helm, chart, step):
    (verb, values), = step.items()
    store = Handler.store
    store.made.clear()
    entry = {"step": verb}
    try:
        if verb == "uninstall":
            helm.uninstall()
        else:
            release = helm.act(verb, chart, values)
            entry["manifest"] = release.get("manifest", "")
            entry["hooks"] = [hook["manifest"] for hook in release.get("hooks") or []]
            entry["notes"] = (release.get("info") or {}).get("notes", "")
    except RuntimeError as error:
        entry["error"] = str(error)
    with store.lock:
        entry["made"] = list(store.made)
        entry["objects"] = list(store.objects.values())
    return entry


def serve_and_act(scratch, library, chart, namespace, *steps):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    helm = Helm(library, namespace, f"http://127.0.0.1:{server.server_port}", scratch)
    print(json.dumps([taken(helm, chart, json.loads(step)) for step in steps]))


def main():
    if os.environ.get("HELM_DRIVER") == "memory":
        return serve_and_act(os.environ["HOME"], *sys.argv[1:])
    # The library knows the environment that its process began with: releases in memory, and nothing of the user's own files.
    with tempfile.TemporaryDirectory() as scratch:
        env = {"PATH": os.environ["PATH"], "HELM_DRIVER": "memory", "HOME": scratch}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=env).returncode)


main()
