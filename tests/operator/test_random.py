"""Any sequence of edits, meddling, deaths and upgrades ends where a fresh start would."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from apiserver import ApiServer
from flatwake_operator import kinds, labels, pins
from flatwake_service.manifest import parse
from lab import Killed, Lab

STEPS = 12
CHILDREN = (kinds.SERVICE, kinds.BUDGET, kinds.ACCOUNT, kinds.NETWORK, kinds.AUTOSCALER)


class Life:
    """One server's life, and the hands that make it hard."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab = lab
        self.random = random.Random(seed)
        self.told: list[str] = []
        lab.create()

    def step(self) -> None:
        moves: list[Callable[[], object]] = [
            lambda: self.lab.edit(limits={"queue": self.random.randint(1, 9)}),
            lambda: self.lab.edit(replicas=self.random.randint(0, 4)),
            lambda: self.lab.edit(autoscaling=self.random.choice([None, {"maxReplicas": 5}])),
            lambda: self.lab.edit(
                access={"from": self.random.choice([None, [{"podSelector": {}}]])}
            ),
            lambda: self.lab.edit(
                template={"serviceAccountName": self.random.choice([None, "own"])}
            ),
            self.delete,
            self.meddle,
            self.die,
            self.upgrade,
            self.lab.pass_,
        ]
        number = self.random.randrange(len(moves))
        self.told.append(str(number))
        moves[number]()

    def delete(self) -> None:
        kind = self.random.choice([*CHILDREN, kinds.DEPLOYMENT, kinds.REVISION])
        for child in self.lab.list(kind):
            self.lab.ok("DELETE", kind.path(self.lab.namespace, child["metadata"]["name"]))

    def meddle(self) -> None:
        if self.lab.get(kinds.DEPLOYMENT):
            self.lab.patch(kinds.DEPLOYMENT, "chat", {"spec": {"minReadySeconds": 3}})
            labelled = {"metadata": {"labels": {labels.SERVER: "other"}}}
            if self.lab.get(kinds.SERVICE):
                self.lab.patch(kinds.SERVICE, "chat", labelled)

    def die(self) -> None:
        self.lab.killed_after = self.random.randrange(8)
        try:
            self.lab.pass_()
        except Killed:
            pass
        finally:
            self.lab.killed_after = None
            self.restart()

    def upgrade(self) -> None:
        images = dict.fromkeys(
            self.lab.settings.images, f"localhost/v{self.random.randint(1, 9)}:1"
        )
        self.lab.settings = replace(self.lab.settings, images=images)
        self.restart()

    def restart(self) -> None:
        self.lab.stop()
        self.lab.start()

    def expect_whole(self) -> None:
        self.lab.settle()
        server = parse(self.lab.want(kinds.SERVER) | {"status": None})
        deployment = self.lab.want(kinds.DEPLOYMENT)
        wanted = pins.pin(server, {}, None)
        assert deployment["metadata"]["annotations"][labels.PIN] == wanted
        revisions = [r["metadata"]["name"] for r in self.lab.list(kinds.REVISION)]
        assert f"chat-{wanted}" in revisions
        assert len(revisions) <= 2
        if server.spec.autoscaling is None:
            assert deployment["spec"]["replicas"] == server.spec.replicas
        assert not deployment["spec"].get("paused")
        expected = {
            kinds.SERVICE: True,
            kinds.BUDGET: True,
            kinds.ACCOUNT: server.spec.template.service_account_name is None,
            kinds.NETWORK: server.spec.access.from_ is not None,
            kinds.AUTOSCALER: server.spec.autoscaling is not None,
        }
        for kind, there in expected.items():
            found = [child for child in self.lab.list(kind) if child["metadata"]["name"] == "chat"]
            assert bool(found) == there, kind.name
            for child in found:
                assert child["metadata"]["labels"][labels.SERVER] == "chat"


@pytest.mark.parametrize("seed", range(4))
def test_it_ends_where_a_fresh_start_would(api: ApiServer, seed: int) -> None:
    lab = Lab(api)
    life = Life(lab, seed)
    for _ in range(STEPS):
        life.step()
    print(f"seed {seed}: moves {' '.join(life.told)}")
    life.expect_whole()
    lab.close()
