"""Protobuf: the bodies that kubectl 1.37 sends for its own generators, and what is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesim.apiserver.representation import protobuf
from kubesim.kinds import Json

SENT = {
    "create namespace foo": (
        "6b3873000a0f0a02763112094e616d657370616365121b0a130a03666f6f12001a0022002a0032003800420012001a020a001a002200",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foo"}},
    ),
    "create secret generic s --from-literal=a=b": (
        "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a0032003800420012060a01611201621a001a002200",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}},
    ),
    "create priorityclass pc --value=0 --preemption-policy=Never": (
        "6b3873000a250a147363686564756c696e672e6b38732e696f2f7631120d5072696f72697479436c61737312210a120a02706312001a"
        "0022002a003200380042001000180022002a054e657665721a002200",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "pc"},
            "value": 0,
            "preemptionPolicy": "Never",
        },
    ),
    "create pdb b --selector=a=b --min-available=50%": (
        "6b3873000a200a09706f6c6963792f76311213506f6444697372757074696f6e42756467657412360a110a016212001a0022002a0032"
        "003800420012150a09080110001a0335302512080a060a01611201621a0a080018002000280030001a002200",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
        },
    ),
    "create job j2 --image=x -- sleep 1": (
        "6b3873000a0f0a0862617463682f763112034a6f62127e0a120a026a3212001a0022002a00320038004200125e325c0a100a0012001a"
        "0022002a00320038004200124812250a026a321201781a05736c6565701a01312a0042006a007200800100880100900100a201001a05"
        "4e65766572320042004a0052005800600068008201008a01009a0100c201001a082000280030003a001a002200",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j2"},
            "spec": {
                "template": {
                    "spec": {
                        "containers": [{"name": "j2", "image": "x", "command": ["sleep", "1"]}],
                        "restartPolicy": "Never",
                    }
                }
            },
        },
    ),
    "create service clusterip web --tcp=80:8080": (
        "6b3873000a0d0a02763112075365727669636512690a1f0a0377656212001a0022002a003200380042005a0a0a036170701203776562"
        "12420a1b0a0738302d38303830120354435018502207080010903f1a002800120a0a0361707012037765621a002209436c7573746572"
        "49503a00420052005a00600068001a020a001a002200",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "ports": [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                "selector": {"app": "web"},
                "type": "ClusterIP",
            },
        },
    ),
}


@pytest.mark.parametrize("command", SENT)
def test_what_kubectl_sends_is_understood(command: str) -> None:
    body, meant = SENT[command]
    assert protobuf.decode(bytes.fromhex(body)) == meant


def _field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content % (1 << 64))
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _body(api_version: str, kind: str, raw: bytes) -> bytes:
    named = _field(1, api_version.encode()) + _field(2, kind.encode())
    return b"k8s\x00" + _field(1, named) + _field(2, raw)


def _decoded(kind: str, raw: bytes) -> Json:
    found = protobuf.decode(_body("v1", kind, raw))
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}


def test_numbers_may_be_negative_and_times_are_written_out() -> None:
    assert _decoded("PriorityClass", _field(2, -5)) == {"value": -5}
    metadata = _field(8, _field(1, 1_767_225_600)) + _field(9, b"")
    assert _decoded("Namespace", _field(1, metadata)) == {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}


def test_what_can_be_left_out_is_kept_when_it_is_empty_and_the_rest_is_not() -> None:
    spec = _field(4, 0) + _field(11, 0) + _field(30, 0) + _field(2, _field(1, b"c"))
    assert _decoded("Pod", _field(2, spec)) == {
        "spec": {"terminationGracePeriodSeconds": 0, "enableServiceLinks": False, "containers": [{"name": "c"}]}
    }


def test_quantities_and_lists_of_messages() -> None:
    entry = _field(1, b"cpu") + _field(2, _field(1, b"500m"))
    gates = _field(38, _field(1, b"a")) + _field(38, _field(1, b"b"))
    pod = _decoded("Pod", _field(2, _field(2, _field(8, _field(2, entry))) + gates))
    assert pod["spec"] == {
        "containers": [{"resources": {"requests": {"cpu": "500m"}}}],
        "schedulingGates": [{"name": "a"}, {"name": "b"}],
    }


def test_the_options_of_a_deletion() -> None:
    assert _decoded("DeleteOptions", _field(1, 0) + _field(4, b"Background")) == {
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


def test_a_field_that_is_not_known_is_refused_unless_it_is_empty() -> None:
    assert _decoded("Pod", _field(2, _field(18, b""))) == {}
    with pytest.raises(protobuf.NotUnderstood, match="field 18 of PodSpec is not understood"):
        _decoded("Pod", _field(2, _field(18, _field(1, b"x"))))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "does not begin"),
        (_body("apps/v1", "Deployment", b""), "'Deployment' are not understood"),
        (_body("v1", "Namespace", b"\x0a\x05ab"), "ends in the middle of a field"),
        (_body("v1", "Namespace", b"\x0a"), "ends in the middle of a number"),
        (_body("v1", "Namespace", b"\x0b"), "wire type 3"),
        (_body("v1", "Namespace", _field(1, 7)), "a number where"),
        (_body("v1", "Namespace", _field(1, _field(1, b"\xff"))), "not UTF-8"),
        (_body("v1", "PriorityClass", _field(2, b"5")), "bytes where a number"),
        (_body("v1", "Namespace", _field(1, _field(8, _field(1, 1 << 62)))), "out of reach"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(protobuf.NotUnderstood, match=why):
        protobuf.decode(body)


@given(st.binary(max_size=80), st.sampled_from(["Namespace", "Pod", "Job", "Service", "PodDisruptionBudget"]))
def test_any_bytes_are_an_object_or_refused(raw: bytes, kind: str) -> None:
    with suppress(protobuf.NotUnderstood):
        assert protobuf.decode(_body("v1", kind, raw))["kind"] == kind


@given(st.binary(max_size=80))
def test_any_envelope_is_an_object_or_refused(body: bytes) -> None:
    with suppress(protobuf.NotUnderstood):
        protobuf.decode(b"k8s\x00" + body)
