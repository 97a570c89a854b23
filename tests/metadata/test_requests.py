"""WIRE section 1: what is a request for the document, and what is not."""

import pytest

from tests.metadata.wireless import NEWEST, PATH, TARGET, VERSIONS, get, post, request

HEADER_MISSING = b'{ "error": "Bad request: . Required metadata header not specified" }'
VERSION_INVALID = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request. For more '
    b'information refer to aka.ms/azureimds","newest-versions":["2020-07-01","2019-08-01",'
    b'"2019-04-01"]}'
)
EMPTY = b'{"DocumentIncarnation":1,"Events":[]}'
QUERY = f"?api-version={NEWEST}"


# ---- Path ----


@pytest.mark.parametrize(
    "target",
    [
        TARGET,
        f"{PATH}/{QUERY}",
        f"/Metadata/ScheduledEvents{QUERY}",
        f"/METADATA/SCHEDULEDEVENTS/{QUERY}",
        f"http://169.254.169.254{TARGET}",
        f"http://169.254.169.254:80{TARGET}",
        f"HTTP://metadata.example/metadata/scheduledEvents/{QUERY}",
        f"http://169.254.169.254{PATH}{QUERY}&next=http://example.com/",
    ],
)
def test_the_path_in_any_case_with_a_slash_or_in_absolute_form(wireless, target):
    """The same document, however the client writes its path."""
    answer = wireless().ask(request("GET", target))

    assert (answer.status, answer.body) == (200, EMPTY)


@pytest.mark.parametrize(
    "target",
    [
        f"/{QUERY}",
        f"/metadata{QUERY}",
        f"/metadata/{QUERY}",
        f"/scheduledevents{QUERY}",
        f"/metadata/scheduledevent{QUERY}",
        f"/metadata/scheduledeventss{QUERY}",
        f"{PATH}/x{QUERY}",
        f"/latest{PATH}{QUERY}",
        f"/metadata/latest/scheduledevents{QUERY}",
        f"/metadata%2Fscheduledevents{QUERY}",
        f"http://169.254.169.254{QUERY}",
        "http://169.254.169.254",
        f"/x?{TARGET}",
        f"/metadata//scheduledevents{QUERY}",
        f"//metadata/scheduledevents{QUERY}",
        f"{PATH}//{QUERY}",
        f"{PATH}///{QUERY}",
        f"/metadata/instance/compute//name{QUERY}&format=text",
        f"/metadata/instance/compute//{QUERY}",
        f"/metadata/instance//{QUERY}",
        f"/metadata/versions//{QUERY}",
        f"http://h?x=1{TARGET}",
        f"https:///{TARGET}",
    ],
)
def test_an_unknown_path_is_not_found(wireless, target):
    """404, with the error as JSON."""
    answer = wireless().ask(request("GET", target))

    assert answer.status == 404
    assert answer.error


@pytest.mark.parametrize(
    "path", ["/metadata/versions", "/metadata/instance", "/metadata/instance/compute/name"]
)
def test_one_slash_at_the_end_makes_no_difference(wireless, path):
    """Elsewhere too."""
    query = "?api-version=2021-02-01&format=text"
    bare, slashed = (wireless().ask(request("GET", path + end + query)) for end in ("", "/"))

    assert (bare.status, bare.body) == (slashed.status, slashed.body)
    assert bare.status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_another_method_is_told_which_are_allowed(wireless, method):
    """405 with Allow, and the connection goes on."""
    vm = wireless().connect()
    answer = vm.ask(request(method))

    assert answer.status == 405
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "POST"]
    assert answer.error
    assert vm.ask(get()).status == 200


@pytest.mark.parametrize("method", ["FOO", "BREW", "get", "Post", "M-FOO", "SETUP", "X" * 60])
def test_a_method_that_nobody_knows_is_another_method(wireless, method):
    """405 with Allow, or 404 for an unknown path, and the end; however the network cuts it."""
    world = wireless()
    for target, status in ((TARGET, 405), ("/metadata/versions", 405), ("/nowhere", 404)):
        raw = request(method, target)
        vm = world.connect()
        answer = vm.ask(raw)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert ("allow" in answer.headers) == (status == 405)
        assert vm.closed
    for place in range(1, len(raw)):
        assert [one.status for one in world.connect().send(raw[:place], raw[place:])] == [404]
    behind = world.connect().send(get() + post(b"{}") + get() + request(method) + get())
    assert [one.status for one in behind] == [200, 400, 200, 405]


@pytest.mark.parametrize(
    ("place", "rest"), [(place, b"a") for place in range(1, 4)] + [(4, b"a"), (4, b"")]
)
def test_the_end_of_a_head_in_pieces_is_where_the_next_request_begins(wireless, place, rest):
    """A method that nobody knows behind a poll whose last blank line came in two pieces."""
    raw = get(*([f"X: {rest.decode()}"] if rest else []))
    pieces = raw[: len(raw) - 4 + place], raw[len(raw) - 4 + place :] + request("FOO")
    answers = wireless().connect().send(*pieces)

    assert [answer.status for answer in answers] == [200, 405]


@pytest.mark.parametrize("line", ["no colon", "Content-Length: x", "A b: c"])
def test_what_is_not_http_is_malformed_whatever_its_method(wireless, line):
    """400 comes before 405: readable HTTP is the first check."""
    assert wireless().ask(request("FOO", TARGET, line)).status == 400


@pytest.mark.parametrize("path", ["/metadata/instance", "/metadata/versions"])
def test_only_scheduled_events_take_a_post(wireless, path):
    """Elsewhere a POST is another method."""
    answer = wireless().ask(request("POST", f"{path}?api-version=2021-02-01", "Content-Length: 0"))

    assert (answer.status, answer.headers["allow"]) == (405, "GET")


# ---- Parameters ----


@pytest.mark.parametrize(
    "query",
    [
        f"api-version={NEWEST}&verbose=1",
        f"verbose=1&api-version={NEWEST}",
        f"a=1&b=2&api-version={NEWEST}&c",
        f"&api-version={NEWEST}&",
        f"api-version={NEWEST}&empty=",
        f"api%2Dversion={NEWEST}",
        "api-version=2020%2D07%2D01",
    ],
)
def test_extra_parameters_are_ignored_in_any_order(wireless, query):
    """200, whatever else is asked."""
    assert wireless().ask(request("GET", f"{PATH}?{query}")).status == 200


@pytest.mark.parametrize(
    "query",
    [
        f"api-version={NEWEST}&api-version={NEWEST}",
        f"api-version={NEWEST}&api-version=2019-08-01",
        f"x=1&api-version={NEWEST}&x=1",
        f"x&api-version={NEWEST}&x=2",
    ],
)
def test_the_same_parameter_twice_is_refused(wireless, query):
    """400, also where both say the same, also where it is one we do not know."""
    answer = wireless().ask(request("GET", f"{PATH}?{query}"))

    assert answer.status == 400
    assert "parameter" in answer.error


@pytest.mark.parametrize("version", VERSIONS)
def test_all_seven_versions_are_served(wireless, version):
    """Each gets the empty document."""
    answer = wireless().ask(get(version=version))

    assert (answer.status, answer.body) == (200, EMPTY)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?",
        "?api-version=",
        "?api-version",
        "?api-version=latest",
        "?api-version=%7Blatest%7D",
        "?api-version={latest}",
        "?api-version=2020-07-02",
        "?api-version=2020-07-01%20x",
        "?version=2020-07-01",
    ],
)
def test_an_invalid_version_is_told_the_newest(wireless, query):
    """400, to the byte what Azure answers."""
    answer = wireless().ask(request("GET", PATH + query))

    assert (answer.status, answer.body) == (400, VERSION_INVALID)


@pytest.mark.parametrize(
    "version", ["2024-07-09", "2017-04-02", "2018-02-01", "2021-02-01", "2023-07-01", "2025-04-07"]
)
def test_a_version_of_the_instance_document_alone_is_not_there(wireless, version):
    """404: OpenShift probes 2024-07-09 and takes that as "use 2020-07-01"."""
    answer = wireless().ask(get(version=version))

    assert answer.status == 404
    assert answer.error


# ---- Headers ----


@pytest.mark.parametrize(
    "line",
    [
        "Metadata: true",
        "Metadata: True",
        "metadata: TRUE",
        "METADATA:true",
        "mEtAdAtA:   tRuE  ",
        "Metadata:\ttrue",
    ],
)
def test_the_metadata_header_in_any_case(wireless, line):
    """`Metadata: True` is what the Azure Linux agent sends."""
    assert wireless().ask(get(metadata=line)).status == 200


@pytest.mark.parametrize(
    "line",
    [
        None,
        "Metadata:",
        "Metadata: false",
        "Metadata: 1",
        "Metadata: true1",
        "X-Metadata: true",
        "Metadata: true\r\nMetadata: true",
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_without_the_metadata_header_only_the_oldest_is_answered(wireless, line, version):
    """400 with the captured bytes, odd spacing included; 2017-03-01 does not ask for it."""
    answer = wireless().ask(get(version=version, metadata=line))

    if version == "2017-03-01":
        assert answer.status == 200
    else:
        assert (answer.status, answer.body) == (400, HEADER_MISSING)


@pytest.mark.parametrize("value", ["10.0.0.1", "", " ", "unknown", "a, b, c"])
@pytest.mark.parametrize("name", ["X-Forwarded-For", "x-forwarded-for", "X-FORWARDED-FOR"])
def test_any_forwarded_request_is_refused(wireless, name, value):
    """400 whatever its value: a proxy was tricked."""
    answer = wireless().ask(get(f"{name}: {value}"))

    assert answer.status == 400
    assert "X-Forwarded-For" in answer.error


@pytest.mark.parametrize("line", ["Origin: http://example.com", "origin: null", "ORIGIN:"])
def test_a_web_page_is_refused(wireless, line):
    """403 for any Origin."""
    answer = wireless().ask(get(line))

    assert answer.status == 403
    assert answer.error


@pytest.mark.parametrize(
    "lines",
    ["", "Host:\r\n", "Host: example.com:99\r\n", "Host: a\r\nHost: b\r\n", "Host: [::1]%$\r\n"],
)
def test_host_is_not_looked_at(wireless, lines):
    """200 without a Host, with a foreign one, with two."""
    raw = f"GET {TARGET} HTTP/1.1\r\n{lines}Metadata: true\r\n\r\n"

    assert wireless().ask(raw.encode()).status == 200


def test_no_other_forwarding_header_matters(wireless):
    """Forwarded, Via and X-Forwarded-Host are not X-Forwarded-For."""
    lines = ("Forwarded: for=1.2.3.4", "Via: 1.1 x", "X-Forwarded-Host: y", "Referer: http://z/")

    assert wireless().ask(get(*lines)).status == 200
