"""Makes the messages and stubs of evenkeel/v1 out of the repository's proto files while the package is built."""
import re
from importlib import metadata
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PROTO = REPOSITORY / "proto" / "proto"


def version() -> str:
    """The version of the programs."""
    text = (REPOSITORY / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"error: no version in {REPOSITORY / 'Cargo.toml'}")
    return found.group(1)


def runtime() -> "list[str]":
    """What the generated code needs: as new as the compiler that makes it."""
    needs = [f"grpcio>={metadata.version('grpcio-tools')}"]
    for need in metadata.requires("grpcio-tools") or []:
        if need.startswith("protobuf"):
            needs.append(need)
    return needs


class Build(build_py):
    """Copies the modules and adds the generated ones."""

    def run(self) -> None:
        super().run()
        editable = getattr(self, "editable_mode", False)
        self.generate(HERE if editable else Path(self.build_lib))

    def generate(self, into: Path) -> None:
        """Writes evenkeel/v1: messages with their types, and gRPC stubs."""
        from grpc_tools import protoc

        files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("evenkeel/v1/*.proto"))
        if not files:
            raise SystemExit(f"error: no proto files in {PROTO}: build the client from the repository's clients/python")
        (into / "evenkeel" / "v1").mkdir(parents=True, exist_ok=True)
        outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{PROTO}", *outputs, *files]) != 0:
            raise SystemExit("error: the proto files cannot be compiled, see above")
        (into / "evenkeel" / "v1" / "__init__.py").write_text('"""Messages and stubs of evenkeel.v1, generated."""\n')


setup(
    version=version(),
    install_requires=runtime(),
    extras_require={"pandas": ["pandas>=1.5"]},
    cmdclass={"build_py": Build},
)
