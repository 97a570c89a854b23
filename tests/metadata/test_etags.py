"""WIRE section 1: ETag and If-None-Match."""

import pytest

from fairnotice.engine.commands import ApplyFleet
from tests.engine.story import DB, WEB
from tests.metadata.wireless import (
    DB_0,
    VERSIONS,
    WEB_1,
    approval,
    get,
    post,
    served_sample,
    start_requests,
)


def test_every_document_has_a_quoted_etag(wireless):
    """In all versions, the same for all VMs of a scope."""
    world = wireless()
    etags = {world.ask(get(version=v), vm).etag for v in VERSIONS for vm in ("10.0.0.1", WEB_1)}

    (etag,) = etags
    assert etag[0] == etag[-1] == '"'
    assert len(etag) > 2


@pytest.mark.parametrize("form", ["{}", "W/{}", "w/{}", "  {}  ", "W/{bare}", "{bare}"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_current_etag_is_answered_304_without_a_body(wireless, form, version):
    """Accepted back quoted, unquoted or weak [Azure's Node sample]."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect()
    etag = vm.ask(get(version=version)).etag
    value = form.format(etag, bare=etag.strip('"'))
    answer = vm.ask(get(f"If-None-Match: {value}", version=version))

    assert (answer.status, answer.body, answer.etag) == (304, b"", etag)
    assert vm.ask(get()).status == 200, "the connection goes on right behind the 304"


@pytest.mark.parametrize("value", ['"other"', "", '""', "W/", '"', "0", '"1-1', "x" * 5_000])
def test_another_etag_is_answered_in_full(wireless, value):
    """200 for what is not the current ETag."""
    world = wireless()
    world.stage.restart_vm("web-0")

    assert world.ask(get(f"If-None-Match: {value}")).status == 200


def test_one_of_several_etags_is_enough(wireless):
    """RFC 9110: If-None-Match is a list."""
    world = wireless()
    etag = world.ask(get()).etag

    assert world.ask(get(f'If-None-Match: "a", {etag}, W/"b"')).status == 304
    assert world.ask(get('If-None-Match: "a", "b"')).status == 200


def test_a_post_ignores_it(wireless):
    """With the current ETag and with another, the approval is taken."""
    world = wireless()
    world.stage.restart_vm("web-0")
    etag = world.ask(get()).etag
    body = start_requests(world.stage.only(WEB).id)

    for value in (etag, '"other"', "*"):
        answer = world.ask(post(body, f"If-None-Match: {value}"))
        assert (answer.status, answer.body) == (200, b"")
        assert "etag" not in answer.headers


def test_a_missing_header_comes_before_a_304(wireless):
    """A condition excuses nothing."""
    world = wireless()
    etag = world.ask(get()).etag

    assert world.ask(get(f"If-None-Match: {etag}", metadata=None)).status == 400
    assert world.ask(get(f"If-None-Match: {etag}", version="latest")).status == 400


def test_it_changes_when_and_only_when_the_incarnation_does(wireless):
    """A restart from the announcement to the end; what does not show changes nothing."""
    world = wireless()
    stage, vm = world.stage, world.connect()
    seen = []

    def look():
        answer = vm.ask(get())
        seen.append((answer.etag, answer.incarnation))

    look()
    stage.restart_vm("web-0")
    look()
    stage.restart_vm("db")  # another scope
    look()
    world.ask(get(), WEB_1)  # somebody else reads
    stage.report_served()  # and it is recorded
    look()
    stage.approve("web-1")
    look()
    stage.done()
    look()

    assert [incarnation for _, incarnation in seen] == [1, 2, 2, 2, 3, 4]
    etags = {incarnation: etag for etag, incarnation in seen}
    assert [etags[incarnation] for _, incarnation in seen] == [etag for etag, _ in seen]
    assert len(set(etags.values())) == len(etags)


def test_it_never_repeats_over_a_disable_and_enable(wireless):
    """Three lives of a scope, each with the same incarnations, and no ETag twice."""
    world = wireless()
    stage = world.stage
    lives = []
    for _ in range(3):
        life = [world.ask(get()).etag]
        stage.restart_vm("web-0")
        life.append(world.ask(get()).etag)
        stage.approve("web-0")
        stage.done()
        life.append(world.ask(get()).etag)
        lives.append(life)
        world.advance(hours=30)
        assert not stage.scope(WEB).enabled

    everything = [etag for life in lives for etag in life]
    assert len(set(everything)) == len(everything)


def test_an_etag_of_an_earlier_life_is_not_current(wireless):
    """A client that slept for a week is told, although the incarnation is the one it knows."""
    world = wireless()
    before = world.ask(get())
    world.advance(hours=168)
    answer = world.ask(get(f"If-None-Match: {before.etag}"))

    assert (answer.status, answer.incarnation) == (200, before.incarnation)


def test_the_etag_while_nobody_can_be_told_is_kept_by_the_enabling(wireless):
    """The empty document served with the control plane away is the one that follows."""
    world = wireless(listening=())
    world.stage.away = True
    served = world.ask(get())
    world.stage.away = False
    enabled = world.ask(get())

    assert (served.body, served.etag) == (enabled.body, enabled.etag)
    assert world.ask(get(f"If-None-Match: {served.etag}")).status == 304


def test_what_was_pending_before_the_enabling_has_its_own_etag(wireless):
    """The empty document of before and the one that shows the event are told apart."""
    world = wireless(listening=())
    world.stage.restart_vm("db", not_before=world.stage.at(hours=1))
    world.stage.away = True
    empty = world.ask(get(), DB_0)
    world.stage.away = False
    answer = world.ask(get(f"If-None-Match: {empty.etag}"), DB_0)

    assert empty.events == []
    assert (answer.status, len(answer.events)) == (200, 1)
    assert answer.etag != empty.etag


def test_a_vm_that_changes_its_scope_is_not_told_304(wireless):
    """The ETag it knows is of another scope's document, whatever their incarnations are."""
    world = wireless()
    stage = world.stage
    request = stage.restart_vm("db").request
    world.run(lambda: stage.cancel(request))
    known = world.ask(get(), DB_0)
    stage.restart_vm("web-0")
    stage.approve("web-0")
    own = world.ask(get(), WEB_1)
    assert (known.incarnation, known.events) == (own.incarnation, [])
    spec = served_sample()
    moved = tuple(v._replace(availability_set="web") if v.name == "db" else v for v in spec.vms)
    world.run(lambda: stage.tell(ApplyFleet(spec=spec._replace(vms=moved))))

    for _ in ("one client in the VM", "another"):
        answer = world.ask(get(f"If-None-Match: {known.etag}"), DB_0)
        assert (answer.status, answer.body) == (200, own.body)


def test_an_address_that_is_another_vms_now_is_not_told_304(wireless):
    """What the former VM knew under this ETag was its own scope's document."""
    world = wireless()
    stage = world.stage
    request = stage.restart_vm("db").request
    world.run(lambda: stage.cancel(request))
    known = world.ask(get(), DB_0)
    stage.restart_vm("web-0")
    stage.approve("web-0")
    own = world.ask(get(), WEB_1)
    assert known.incarnation == own.incarnation
    now = {"db": ("10.0.4.9",), "web-2": (DB_0,)}
    spec = served_sample()
    vms = tuple(vm._replace(addresses=now.get(vm.name, vm.addresses)) for vm in spec.vms)
    world.run(lambda: stage.tell(ApplyFleet(spec=spec._replace(vms=vms))))
    answer = world.ask(get(f"If-None-Match: {known.etag}"), DB_0)

    assert (answer.status, answer.body) == (200, own.body)


def test_a_vm_that_was_removed_and_put_back_is_not_told_304(wireless):
    """The same name, the same numbers, another event."""
    world = wireless()
    stage, spec = world.stage, served_sample()
    stage.restart_vm("db")
    known = world.ask(get(), DB_0)
    stage.approve("db")
    stage.done()
    others = tuple(vm for vm in spec.vms if vm.name != "db")
    for vms in (others, spec.vms):
        stage.tell(ApplyFleet(spec=spec._replace(vms=vms)))
    world.ask(get(), DB_0)
    stage.restart_vm("db")
    answer = world.ask(get(f"If-None-Match: {known.etag}"), DB_0)

    assert (answer.status, answer.incarnation) == (200, known.incarnation)
    assert answer.events != known.events
    assert answer.etag != known.etag


def test_an_empty_document_is_the_same_in_every_scope(wireless):
    """Same number, same bytes: it is shared, and its ETag is as good from one as from another."""
    world = wireless()
    pages = world.worker.board.pages
    own, other = world.ask(get()), world.ask(get(), DB_0)

    assert (own.etag, own.body) == (other.etag, other.body)
    assert pages[WEB].answers is pages[DB].answers
    assert world.ask(get(f"If-None-Match: {own.etag}"), DB_0).status == 304


@pytest.mark.parametrize("value", ["*", " * ", '"x", *'])
def test_a_star_is_any_document(wireless, value):
    """RFC 9110: whatever there is, is not asked for."""
    world = wireless()
    for _ in range(2):
        assert world.ask(get(f"If-None-Match: {value}")).status == 304
        world.stage.restart_vm("web-0")


def test_an_approval_moves_the_etag_before_its_200(wireless):
    """Whoever reads right after his 200 sees another document."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect()
    etag = vm.ask(get()).etag
    answers = vm.send(approval(world.stage.only(WEB).id) + get(f"If-None-Match: {etag}"))

    assert [answer.status for answer in answers] == [200, 200]
