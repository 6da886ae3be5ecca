"""The manifests of docs/how_to/several_hosts.md: their fields, and their commands as processes with the variables of the pods."""

import importlib.util
import os
import re

from harness import *
from launching import wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/how_to/several_hosts.md"
MOUNTS = [{"name!": str, "mountPath!": str}]
VOLUMES = [{"name!": str, "persistentVolumeClaim!": {"claimName!": str}}]
PROCESS = {"image!": str, "command!": [str], "args": [str], "env": [{"name!": str, "valueFrom!": {"secretKeyRef!": {"name!": str, "key!": str}}}]}
POD = {"containers!": [{"name!": str, **PROCESS, "volumeMounts": MOUNTS}], "volumes": VOLUMES, "subdomain": str, "restartPolicy": str}
NAMED = {"apiVersion!": str, "kind!": str, "metadata!": {"name!": str}}
POD_PATCH = {"containers!": [{"name!": str, "volumeMounts!": MOUNTS}], "volumes!": VOLUMES}
RUNTIME_PATCH = {"replicatedJobs!": [{"name!": str, "template!": {"spec!": {"template!": {"spec!": POD_PATCH}}}}]}
REPLICA = {"replicas!": int, "restartPolicy!": str, "template!": {"spec!": POD}}
# Fields of the objects as Kubernetes and the training operator name them; "!": must be there.
FIELDS = {("v1", "Service"): {**NAMED, "spec!": {"clusterIP!": str, "publishNotReadyAddresses!": bool, "selector!": {"job-name!": str}}},
          ("batch/v1", "Job"): {**NAMED, "spec!": {"completionMode!": str, "completions!": int, "parallelism!": int, "template!": {"spec!": POD}}},
          ("kubeflow.org/v1", "PyTorchJob"):
              {**NAMED, "spec!": {"runPolicy!": {"backoffLimit!": int}, "pytorchReplicaSpecs!": {"Master!": REPLICA, "Worker!": REPLICA}}},
          ("trainer.kubeflow.org/v1alpha1", "TrainJob"):
              {**NAMED, "spec!": {"runtimeRef!": {"name!": str}, "trainer!": {**PROCESS, "numNodes!": int, "numProcPerNode!": int},
                                  "runtimePatches!": [{"manager!": str, "trainingRuntimeSpec!": {"template!": {"spec!": RUNTIME_PATCH}}}]}}}


def wrong_fields(value, fields, place=""):
    """Where a value has a field that is unknown, missing or of another type."""
    if isinstance(fields, type):
        return [] if type(value) is fields else [f"{place} is no {fields.__name__}"]
    if isinstance(fields, list):
        return [wrong for number, one in enumerate(value) for wrong in wrong_fields(one, fields[0], f"{place}[{number}]")]
    known = {name.rstrip("!"): part for name, part in fields.items()}
    found = [f"{place}.{name} is unknown" for name in value if name not in known]
    found += [f"{place}.{name[:-1]} is missing" for name in fields if name.endswith("!") and name[:-1] not in value]
    return found + [wrong for name in value if name in known for wrong in wrong_fields(value[name], known[name], f"{place}.{name}")]


@unittest.skipUnless(importlib.util.find_spec("yaml"), "needs PyYAML")
class Manifests(ProgramTest):
    def setUp(self):
        super().setUp()
        import yaml  # pylint: disable=import-outside-toplevel
        self.objects = {}
        for block in re.findall(r"^```text\n(apiVersion:.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
            for one in yaml.safe_load_all(block):
                self.objects[one["apiVersion"], one["kind"]] = one
        self.port = random.randint(10000, 30000)
        model = self.model()
        self.places = {"/data/MODEL": model, "/data/texts.tokens": self.store(model), "/data/RUN": self.folder / "run",
                       "bert-0.bert:29500": f"127.0.0.1:{self.port}"}

    def start(self, words, **variables):
        """A container's process. The words are as in the manifest, but for the places and the length of the training."""
        more = ["--max-steps", "60", "--max-length", "32", "--batch-size", "8", "--save-steps", "5"]
        words = [*words[:-1], " ".join([words[-1], *more])] if words[0] == "sh" else [*words, *more]
        for place, here in self.places.items():
            words = [word.replace(place, str(here)) for word in words]
        said = self.folder / f"said-{len(list(self.folder.glob('said-*')))}"
        with open(said, "w", encoding="utf-8") as file:
            process = subprocess.Popen(words, stdout=file, stderr=file, start_new_session=True,
                                       env={**environment(), "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}",
                                            "FUNICULAR_SECRET": "a-secret-of-the-cluster", **variables})
        process.said = said
        self.addCleanup(self.evict, process)
        return process

    def evict(self, process):
        """Kills a container; ranks end with their launch."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def all_succeed(self, pods, start):
        """A container that fails is started again, as by restartPolicy OnFailure. Gives what the last ones said."""
        def have_ended():
            for index, pod in enumerate(pods):
                if pod.poll():
                    pods[index] = start(index)
            return all(pod.poll() == 0 for pod in pods)
        said = wait_until(have_ended, 120), [pod.said.read_text() for pod in pods]
        self.assertTrue(said[0], said)
        self.assertTrue((self.folder / "run/model/model.safetensors").is_file())
        return said[1]

    def test_the_fields_are_those_of_kubernetes(self):
        self.assertEqual(self.objects.keys(), FIELDS.keys())
        for kind, one in self.objects.items():
            self.assertEqual(wrong_fields(one, FIELDS[kind]), [], kind)
        job, service = self.objects["batch/v1", "Job"], self.objects["v1", "Service"]
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        self.assertEqual(service["spec"]["selector"]["job-name"], job["metadata"]["name"])
        self.assertEqual(service["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"])
        self.assertEqual(wrong_fields({"kind": 1, "more": 2}, {"kind!": str, "name!": str}), [".more is unknown", ".name is missing", ".kind is no str"])

    def test_the_pods_of_an_indexed_job_train_and_one_that_is_evicted_comes_back(self):
        container = self.objects["batch/v1", "Job"]["spec"]["template"]["spec"]["containers"][0]
        words = [*container["command"], *container["args"]]

        def start(index):
            return self.start(words, JOB_COMPLETION_INDEX=str(index))
        pods = [start(index) for index in (0, 1)]
        self.assertTrue(wait_until(lambda: list(self.folder.glob("run/checkpoints/step-*"))), [pod.said.read_text() for pod in pods])
        self.evict(pods[1])
        self.assertIn("4 ranks on 1 host: ddp", self.all_succeed(pods, start)[0])

    def test_the_pods_of_a_pytorchjob_train(self):
        replicas = self.objects["kubeflow.org/v1", "PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
        containers = [replicas[name]["template"]["spec"]["containers"][0] for name in ("Master", "Worker")]
        size = sum(one["replicas"] for one in replicas.values())

        def start(index):
            return self.start(containers[index]["command"], RANK=str(index), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port))
        self.assertIn("2 ranks on 1 host: ddp", self.all_succeed([start(0), start(1)], start)[0])

    def test_the_pods_of_a_trainjob_train(self):
        trainer = self.objects["trainer.kubeflow.org/v1alpha1", "TrainJob"]["spec"]["trainer"]

        def start(index):
            return self.start([*trainer["command"], *trainer["args"]], PET_NNODES=str(trainer["numNodes"]), PET_NODE_RANK=str(index),
                              PET_NPROC_PER_NODE=str(trainer["numProcPerNode"]), PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=str(self.port))
        self.assertIn("4 ranks on 1 host: ddp", self.all_succeed([start(index) for index in range(trainer["numNodes"])], start)[0])


if __name__ == "__main__":
    unittest.main()
