"""Writes an OCI image layout (opencontainers/image-spec, "Image Layout") as a tar, out of a Dockerfile for scratch.

Owns the few instructions that such a file needs: FROM scratch, LABEL, COPY, USER, EXPOSE, ENTRYPOINT, CMD. Any other is
an error, so that this and `docker build` make the same image. Called by scripts/image.
"""
import gzip
import hashlib
import io
import json
import os
import shlex
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path


def instructions(dockerfile):
    """Pairs of instruction and arguments; continued lines are joined, comments left out."""
    lines = (line for line in dockerfile.read_text().splitlines() if line.strip() and not line.startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word, rest.strip()


def read(dockerfile, directory):
    """The configuration of containers, and (source, absolute target) of each file."""
    config, files = {"Labels": {}}, []
    for word, rest in instructions(dockerfile):
        if word == "FROM" and rest == "scratch":
            continue
        elif word == "LABEL":
            config["Labels"].update(part.split("=", 1) for part in shlex.split(rest))
        elif word == "COPY" and rest.endswith("/") and not rest.startswith("--"):
            *sources, target = rest.split()
            files += [(directory / source, f"{target}{source}") for source in sources]
        elif word == "USER":
            config["User"] = rest
        elif word == "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in rest.split()}
        elif word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = json.loads(rest)
        else:
            sys.exit(f"error: {dockerfile}: {word} {rest}: not an instruction that scripts/image knows")
    return config, files


def entry(name, kind, mode, epoch):
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.mtime = kind, mode, epoch
    return made


def layer(files, epoch):
    """One layer as a tar: everything root's, programs executable, in the order of names."""
    written, packed = set(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for source, target in sorted(files, key=lambda file: file[1]):
            path = target.lstrip("/")
            for above in reversed(Path(path).parents[:-1]):
                if above not in written:
                    written.add(above)
                    tar.addfile(entry(str(above), tarfile.DIRTYPE, 0o755, epoch))
            if not source.is_file():
                sys.exit(f"error: {source} is not there: run scripts/build-static")
            content = source.read_bytes()
            file = entry(path, tarfile.REGTYPE, 0o755 if path.startswith("usr/bin/") else 0o644, epoch)
            file.size = len(content)
            tar.addfile(file, io.BytesIO(content))
    return packed.getvalue()


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def main(dockerfile, directory, out, tag, version, architecture):
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    created = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config, files = read(Path(dockerfile), Path(directory))
    config["Labels"]["org.opencontainers.image.version"] = version
    config["Env"] = ["PATH=/usr/bin"]
    blobs = {}

    def blob(media, content):
        blobs[f"blobs/sha256/{digest(content)[7:]}"] = content
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": digest(content), "size": len(content)}

    plain = layer(files, epoch)
    packed = blob("layer.v1.tar+gzip", gzip.compress(plain, 6, mtime=0))
    platform = {"architecture": architecture, "os": "linux"}
    described = {
        **platform,
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
        "history": [{"created": created, "created_by": "scripts/image"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", json.dumps(described, sort_keys=True).encode()),
        "layers": [packed],
        "annotations": config["Labels"] | {"org.opencontainers.image.created": created},
    }
    named = blob("manifest.v1+json", json.dumps(manifest, sort_keys=True).encode())
    named |= {"platform": platform, "annotations": {
        "io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag.rpartition(":")[2]}}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]}
    everything = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for above in ("blobs", "blobs/sha256"):
            tar.addfile(entry(above, tarfile.DIRTYPE, 0o755, epoch))
        for name, content in sorted(everything.items()):
            file = entry(name, tarfile.REGTYPE, 0o644, epoch)
            file.size = len(content)
            tar.addfile(file, io.BytesIO(content))
    print(f"{tag} {named['digest']} in {out}")


if __name__ == "__main__":
    main(*sys.argv[1:])
