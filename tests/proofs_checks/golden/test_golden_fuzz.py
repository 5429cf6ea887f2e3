"""1,000 random corruptions of golden files: none is accepted, none crashes, each is named by file and case."""

import json
import random

import pytest

from proofs_checks.golden.check import SUMS, golden_directory, load_case, load_manifest, read_sums
from proofs_checks.golden.manifest import NAME, canonical, entry_digest
from proofs_checks.golden.tensors import ContentError, digest

CASE_FILES, MANIFESTS, SUM_FILES = 880, 60, 60
TAGS = ("F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U16", "U8", "BOOL", "F8_E4M3", "X9")
WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "U16": 2}


@pytest.fixture(scope="module")
def golden():
    place = golden_directory()
    sums = read_sums((place / SUMS).read_bytes())
    text = (place / NAME).read_bytes()
    manifest = load_manifest(text, sums)
    contents = {case: (place / entry.file).read_bytes() for case, entry in manifest.cases.items()}
    return manifest.cases, contents, sums, text


def split(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header, data):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def flip(content, rng):
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ rng.randrange(1, 256)]) + content[at + 1 :]


def other_tag(content, rng):
    header, data = split(content)
    about = header[rng.choice(sorted(header))]
    about["dtype"] = rng.choice([t for t in TAGS if t != about["dtype"]])
    return joined(header, data)


def swapped_bytes(content, rng):
    header, data = split(content)
    wide = [a for a in header.values() if a["dtype"] in WIDTHS and a["data_offsets"][0] < a["data_offsets"][1]]
    rng.shuffle(wide)
    for about in wide:
        (begin, end), width = about["data_offsets"], WIDTHS[about["dtype"]]
        turned = b"".join(data[i : i + width][::-1] for i in range(begin, end, width))
        if turned != data[begin:end]:
            return joined(header, data[:begin] + turned + data[end:])
    return flip(content, rng)


def other_shape(content, rng):
    header, data = split(content)
    about = header[rng.choice(sorted(header))]
    about["shape"] = [*about["shape"], 1] if rng.random() < 0.5 else [1, *about["shape"]]
    return joined(header, data)


def renamed(content, rng):
    header, data = split(content)
    name = rng.choice(sorted(header))
    header[f"{name}x"] = header.pop(name)
    return joined(header, data)


def truncated(content, rng):
    return content[: rng.randrange(len(content))]


def extended(content, rng):
    return content + rng.randbytes(rng.randrange(1, 9))


def exchanged(content, rng):
    half = rng.randrange(1, len(content))
    return content[half:] + content[:half]


def refusal(check, *arguments):
    """The sentence with which a check refuses, None where it accepts; any other exception is a crash."""
    try:
        check(*arguments)
    except ContentError as error:
        return str(error)
    return None


FILE_CORRUPTIONS = (flip, flip, flip, other_tag, swapped_bytes, other_shape, renamed, truncated, extended, exchanged)


def test_corrupted_case_files_are_refused(golden):
    cases, contents, sums, _ = golden
    rng = random.Random(10)
    accepted = []
    for number in range(CASE_FILES):
        case = rng.choice(sorted(cases))
        corrupt = FILE_CORRUPTIONS[number % len(FILE_CORRUPTIONS)]
        changed = corrupt(contents[case], rng)
        if changed == contents[case]:  # such as a file of one repeated byte turned by a half
            changed = flip(contents[case], rng)
        accepted += [(case, corrupt.__name__)] if refusal(load_case, changed, cases[case], sums) is None else []
    assert not accepted


def test_payloads_tags_and_shapes_are_refused_even_under_a_new_digest_of_the_file(golden):
    """Somebody who copies a broken set may sum it up anew; the manifest still knows every tensor."""
    cases, contents, sums, _ = golden
    rng = random.Random(11)
    for corrupt in (other_tag, swapped_bytes, other_shape, renamed, truncated, extended) * 20:
        case = rng.choice(sorted(c for c in cases if len(contents[c]) < 50000))
        changed = corrupt(contents[case], rng)
        with pytest.raises(ContentError):
            load_case(changed, cases[case], {**sums, cases[case].file: digest(changed)})


def test_messages_say_what_happened(golden):
    cases, contents, sums, _ = golden
    case = "merge_attention/masses-8-and-2"
    header, data = split(contents[case])
    begin = header["expected/lse"]["data_offsets"][0]
    turned = data[:begin] + b"".join(data[i : i + 8][::-1] for i in range(begin, begin + 16, 8)) + data[begin + 16 :]
    tagged = json.loads(json.dumps(header))
    tagged["expected/lse"]["dtype"] = "I64"
    for changed, words in (
        (joined(header, turned), "expected/lse: its bytes are swapped"),
        (joined(tagged, data), "expected/lse: dtype tag I64, the manifest says F64"),
        (contents[case][:-3], "truncated"),
        (contents[case][:4], "no safetensors file is shorter than 8"),
        (joined(header | {"__metadata__": {"a": "1", "b": "2"}}, data), "2 metadata keys, expected at most one"),
        (joined(header, data), "its bytes are not those of SHA256SUMS"),
    ):
        with pytest.raises(ContentError, match=words):
            load_case(changed, cases[case], sums)


def spans(text, cases):
    """Begin and end of every entry in the manifest's text, by id; a comma between two belongs to both."""
    found, at = {}, text.index(b"[") + 1
    for case in sorted(cases):
        end = at + len(canonical(cases[case].sealed()))
        found[case] = (at - 1, end + 1)
        at = end + 1
    return found


def edited(value, rng, case):
    """The manifest with one field of one entry changed, and its digest with it half of the time."""
    entry = next(e for e in value["cases"] if e["id"] == case)
    field = rng.choice(
        ["dtype", "stored", "shape", "sha256", "rule", "flags", "family", "stage", "why", "file", "gone"]
    )
    tensor = entry["tensors"][rng.choice(sorted(entry["tensors"]))]
    if field in tensor:
        tensor[field] = {"dtype": "int32", "stored": "I16", "shape": [-1], "sha256": "0" * 63}[field]
    elif field == "rule":
        entry["results"][rng.choice(sorted(entry["results"]))]["rule"] = "near"
    elif field == "gone":
        del entry[rng.choice(sorted(entry))]
    else:
        entry[field] = ["none"] if field == "flags" else "nobody/knows"
    if rng.random() < 0.5 and field not in ("why", "gone"):
        entry["digest"] = entry_digest({k: v for k, v in entry.items() if k != "digest"})
    return canonical(value)


def test_corrupted_manifests_are_refused_and_name_the_case(golden):
    cases, _, sums, text = golden
    rng = random.Random(12)
    places = spans(text, cases)
    for number in range(MANIFESTS):
        if number % 2:
            case = rng.choice(sorted(cases))
            meant, changed = {case}, edited(json.loads(text), rng, case)
        else:
            at = rng.randrange(len(text))
            changed = text[:at] + bytes([text[at] ^ rng.randrange(1, 256)]) + text[at + 1 :]
            meant = {case for case, (begin, end) in places.items() if begin <= at < end} or {None}
        with pytest.raises(ContentError) as refused:
            load_manifest(changed, sums)
        assert refused.value.case in meant, str(refused.value)
    for changed in (
        text[:1000],
        text[:-1],
        b"",
        b"[]",
        b"\xff" + text,
        text + b" ",
        text.replace(b'"format":1', b'"format":2'),
    ):
        with pytest.raises(ContentError):
            load_manifest(changed, sums)


def test_corrupted_sums_are_refused(golden):
    cases, contents, _, text = golden
    rng = random.Random(13)
    content = (golden_directory() / SUMS).read_bytes()
    for _ in range(SUM_FILES):
        changed = flip(content, rng)
        if refusal(read_sums, changed) is not None:
            assert refusal(read_sums, changed).startswith("line ")
            continue
        sums = read_sums(changed)
        refused = [case for case, entry in cases.items() if sums.get(entry.file) != digest(contents[case])]
        assert refused or sums.get(NAME) != digest(text)
        for case in refused:
            with pytest.raises(ContentError, match=SUMS):
                load_case(contents[case], cases[case], sums)
