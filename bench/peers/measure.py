"""What the peers' measurements share: threads, memory, versions. Import it before torch: it sets its environment."""
import importlib.metadata
import os
import re
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[2]
# What changes a peer's speed from outside, and so belongs beside its figures.
TUNING = re.compile(r"^(OMP_|KMP_|GOMP_|MALLOC_|GLIBC_TUNABLES|LD_PRELOAD|THP_|ONEDNN_|DNNL_|MKL_|RAYON_)")


def cores() -> int:
    return len(os.sched_getaffinity(0))


def peak_resident_bytes() -> int:
    """The largest resident size since the process began or reset_peak() was last called (Linux: VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)[1]) * 1024


def reset_peak() -> None:
    """Sets the peak to what is resident now (proc(5): writing 5 to clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def versions(*packages: str) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in packages}


def tuning() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if TUNING.match(name)}


def save_tokenizer(model: Path, output: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (model / name).exists():
            (output / name).write_bytes((model / name).read_bytes())
