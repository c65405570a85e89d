"""The manifests in docs/kubernetes: valid for Kubernetes, true to each other, and to what the programs have."""

import copy
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from agentmesh.cli.bench import join_command, summary_command
from agentmesh.cli.policy_file import read_policy
from agentmesh.cli.program import STOP_TIMEOUT
from agentmesh.cli.programs import PROGRAMS
from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.membership.pages import make_pages
from agentmesh.router.departures import GRACE
from agentmesh.types import Address
from tests.control_plane.test_metrics import NAMES as CONTROL_PLANE
from tests.test_metric_names import NODE, ROUTER

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "kubernetes"
GUIDES = (ROOT / "docs" / "kubernetes.md", ROOT / "docs" / "scalability.md")
VERSIONS = ("1.30", "1.34", "1.37")
IMAGE = "agentmesh:0.1.0"
Manifest = dict[str, Any]

FILES = {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))}
MANIFESTS: list[Manifest] = [manifest for file in FILES.values() for manifest in file]
IDS = [f"{one['kind']}/{one['metadata']['name']}" for one in MANIFESTS]
METRICS = {
    *(name.split()[1] for name in (*ROUTER, *NODE)),
    *(f"agentmesh_control_plane_{name}" for name in CONTROL_PLANE),
}


def find(kind: str, name: str) -> Manifest:
    (found,) = [one for one in MANIFESTS if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


PODS: dict[str, Manifest] = {
    one["metadata"]["name"]: one["spec"]["template"] for one in MANIFESTS if "template" in one.get("spec", {})
}
OURS: list[tuple[str, Manifest]] = [
    (name, container)
    for name, pod in PODS.items()
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    if container["image"] == IMAGE
]
BY_NAME = {container["name"]: container for _, container in OURS}


def options_of(program: str) -> dict[str, click.Option]:
    assert program in PROGRAMS
    command: click.Command = importlib.import_module(f"agentmesh.cli.{program.replace('-', '_')}").command
    return {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}


def arguments_of(container: Manifest) -> dict[str, str]:
    """Its flags and their values, as the pod router-0 has them."""
    pairs = (argument.replace("$(POD_NAME)", "router-0").partition("=") for argument in container["args"][1:])
    return {flag: value for flag, _, value in pairs}


# ── Kubernetes ──


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=IDS)
def test_kubernetes_takes_it(manifest: Manifest, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_what_kubernetes_would_not_take_is_found() -> None:
    broken = copy.deepcopy(find("StatefulSet", "router"))
    broken["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=IDS)
def test_selectors_find_pods_of_these_manifests(manifest: Manifest) -> None:
    if manifest["kind"] == "HorizontalPodAutoscaler":
        target = manifest["spec"]["scaleTargetRef"]
        assert find(target["kind"], target["name"])
    selector = manifest.get("spec", {}).get("selector")
    if selector is not None:
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= pod["metadata"]["labels"].items() for pod in PODS.values())


@pytest.mark.parametrize("pod", PODS)
def test_volumes_are_there_and_used(pod: str) -> None:
    spec = PODS[pod]["spec"]
    claims = find("StatefulSet", "router")["spec"]["volumeClaimTemplates"] if pod == "router" else ()
    there = {volume["name"] for volume in spec["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == there


def test_a_service_leads_to_ports_that_pods_have() -> None:
    for service in (one for one in MANIFESTS if one["kind"] == "Service"):
        (pod,) = [
            one for one in PODS.values() if service["spec"]["selector"].items() <= one["metadata"]["labels"].items()
        ]
        ports = {port["name"]: port["containerPort"] for one in pod["spec"]["containers"] for port in one["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


# ── the programs ──


@pytest.mark.parametrize(("pod", "container"), OURS, ids=[name for name, _ in OURS])
def test_every_flag_is_one_of_the_program(pod: str, container: Manifest) -> None:
    program, options = container["args"][0], options_of(container["args"][0])
    for flag, value in arguments_of(container).items():
        option = options[flag]
        assert option.is_flag == (value == ""), flag
        if value and not value.startswith("/etc/"):
            option.type.convert(value, option, click.Context(click.Command(program)))
    required = [option.opts[0] for option in options.values() if option.required]
    assert set(required) <= set(arguments_of(container))
    known = {option.envvar for option in options.values()} | {"LOG_FORMAT", "POD_NAME"}
    assert {one["name"] for one in container["env"]} <= known


@pytest.mark.parametrize(("pod", "container"), OURS, ids=[name for name, _ in OURS])
def test_its_ports_probes_and_files_are_those_of_its_flags(pod: str, container: Manifest) -> None:
    flags = arguments_of(container)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["metrics"] == parse_bind_address(flags["--metrics-addr"])[1]
    assert PODS[pod]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    if "--listen" in flags:
        assert str(ports["mesh"]) == dict(Address.parse(flags["--listen"]).parts)["tcp"]
        assert dict(Address.parse(flags["--external-addr"]).parts)["tcp"] == str(ports["mesh"])
    if "--bind-address" in flags:
        assert ports["http"] == parse_bind_address(flags["--bind-address"])[1]
    pages = {route.path for route in make_pages(CollectorRegistry(), bool, {}).routes if isinstance(route, Route)}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] in pages
        assert asked["port"] == "metrics"
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for flag in (flag for flag in flags if flag.endswith(("-path", "-dir", "-file"))):
        assert any(flags[flag].startswith(f"{mount}/") for mount in mounts), flag


def test_members_find_the_control_plane_and_the_routers_by_the_names_that_services_give() -> None:
    service = find("Service", "control-plane")
    where = f"http://control-plane.agentmesh.svc.cluster.local:{service['spec']['ports'][0]['port']}"
    for program in ("router", "node"):
        assert arguments_of(BY_NAME[program])["--control-plane"] == where
    routers = find("StatefulSet", "router")
    assert routers["spec"]["serviceName"] == "router"
    address = Address.parse(arguments_of(BY_NAME["router"])["--external-addr"])
    assert dict(address.parts)["dns4"] == "router-0.router.agentmesh.svc.cluster.local"


def test_secrets_hold_what_the_guide_puts_there() -> None:
    text = GUIDES[0].read_text()
    for container in BY_NAME.values():
        paths = [*arguments_of(container).values(), *(one.get("value", "") for one in container["env"])]
        for path in (one for one in paths if one.startswith("/etc/agentmesh/secrets/")):
            assert f"--from-literal={Path(path).name}=" in text
    for pod in PODS.values():
        for volume in (one for one in pod["spec"]["volumes"] if "secret" in one):
            assert f"create secret generic {volume['secret']['secretName']} " in text


def test_a_key_on_a_volume_stays_its_owners_alone() -> None:
    """Else Kubernetes gives each file to the group when a pod starts again, and the program refuses its key."""
    security = PODS["router"]["spec"]["securityContext"]
    assert security["fsGroup"] == security["runAsUser"]
    assert security["fsGroupChangePolicy"] == "OnRootMismatch"


def test_the_policy_is_one(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(find("ConfigMap", "policy")["data"]["policy.yaml"])
    with file.open() as opened:
        assert read_policy(opened).roles


def test_a_pod_is_not_killed_before_its_program_would_end_by_itself() -> None:
    flags = {name: arguments_of(container) for name, container in BY_NAME.items()}
    ttl = float(flags["router"]["--shutdown-lease-ttl"].removesuffix("s"))
    assert ttl >= GRACE
    for pod, container in OURS:
        before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        takes = before + STOP_TIMEOUT + (ttl if pod == "router" else 0.0)
        assert PODS[pod]["spec"]["terminationGracePeriodSeconds"] >= takes
    (row,) = re.findall(r"`terminationGracePeriodSeconds` \| (\d+) ", GUIDES[0].read_text())
    assert int(row) == PODS["router"]["spec"]["terminationGracePeriodSeconds"]


def test_the_autoscaler_reckons_with_the_watermark_of_the_routers() -> None:
    (metric,) = find("HorizontalPodAutoscaler", "router")["spec"]["metrics"]
    high = arguments_of(BY_NAME["router"])["--high-watermark"]
    assert metric["external"]["target"]["averageValue"] == high
    (rule,) = yaml.safe_load(find("ConfigMap", "prometheus-adapter")["data"]["config.yaml"])["externalRules"]
    assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    query = re.sub(r",<<.LabelMatchers>>", "", rule["metricsQuery"])
    assert query in GUIDES[0].read_text()


# ── names ──


def test_every_metric_that_is_named_exists() -> None:
    made = {find("HorizontalPodAutoscaler", "router")["spec"]["metrics"][0]["external"]["metric"]["name"]}
    for path in (*GUIDES, *FOLDER.glob("*.yaml")):
        named = set(re.findall(r"\b(?:agentmesh_(?:router|node|control_plane)|libp2p)_\w+", path.read_text()))
        assert named - made <= METRICS, path.name


def flags_in(text: str) -> Iterator[tuple[str, str]]:
    """Programs and flags that stand behind them: `agentmesh router --label site=a`."""
    for command in re.findall(r"`agentmesh ([^`]*)`", text):
        program = command.split()[0]
        if program != "bench":
            yield from ((program, flag) for flag in re.findall(r"(?<!\S)--[a-z-]+", command))


@pytest.mark.parametrize("guide", GUIDES, ids=[guide.name for guide in GUIDES])
def test_every_flag_that_a_guide_names_exists(guide: Path) -> None:
    text = guide.read_text()
    for program, flag in flags_in(text):
        assert flag in options_of(program), (program, flag)
    everywhere = {flag for program in ("control-plane", "router", "node") for flag in options_of(program)}
    bench = {flag for one in (join_command, summary_command) for option in one.params for flag in option.opts}
    admin = {"--role", "--max-usages", "--ttl", "--from-literal"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= everywhere | admin | bench
