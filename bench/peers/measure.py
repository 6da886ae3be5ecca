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


# BERT's configuration of the sizes that have a name, as far as it differs from BERT-base's.
SIZES = {"base": {}, "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
         "small": {"hidden_size": 312, "num_hidden_layers": 4, "intermediate_size": 1200}}


def cores() -> int:
    return len(os.sched_getaffinity(0))


def pin(rank: int, ranks: int) -> int:
    """Binds this process to its share of the cores, whole ones and as many for each rank, as `funicular launch` binds its
    ranks; gives the threads for it. With fewer cores than ranks nothing is bound."""
    whole: dict[tuple, list[int]] = {}
    for processor in sorted(os.sched_getaffinity(0)):
        topology = Path(f"/sys/devices/system/cpu/cpu{processor}/topology")
        place = [int((topology / name).read_text()) for name in ("physical_package_id", "core_id")] \
            if topology.exists() else [0, processor]
        whole.setdefault(tuple(place), []).append(processor)
    shares = [whole[place] for place in sorted(whole)]
    each = len(shares) // ranks
    if each == 0:
        return 1
    os.sched_setaffinity(0, sum(shares[rank * each:(rank + 1) * each], []))
    return each


def peak_resident_bytes() -> int:
    """The largest resident size since the process began or reset_peak() was last called (Linux: VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)[1]) * 1024


def reset_peak() -> None:
    """Sets the peak to what is resident now (proc(5): writing 5 to clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def process_seconds() -> float:
    """Since this process was started, the interpreter's own start included (proc(5): field 22 of stat)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started


def versions(*packages: str) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in packages}


def tuning() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if TUNING.match(name)}


def save_tokenizer(model: Path, output: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (model / name).exists():
            (output / name).write_bytes((model / name).read_bytes())
