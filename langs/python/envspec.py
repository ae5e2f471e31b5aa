"""Normalises the specification of an environment: the text of a pyproject.toml becomes a canonical map and its digest.

Order, spacing, comments, spelling of names and the project's own name do not matter to the digest; requirements, index settings,
preloads and the interpreter do. What is not understood but would change the result is refused, never left out in silence.
"""
import difflib
import hashlib
import json
import os
import re
import tomllib
from urllib.parse import urlsplit

try:
    from packaging.markers import Marker
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import canonicalize_name
except ImportError:
    from pip._vendor.packaging.markers import Marker
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
    from pip._vendor.packaging.specifiers import InvalidSpecifier, SpecifierSet
    from pip._vendor.packaging.utils import canonicalize_name

import envpython

FORMAT = 1
MAX_SPEC = 1 << 20
MAX_REQUIREMENT = 4096  # characters of one requirement, without its hashes

PROJECT_KEYS = ("name", "version", "description", "readme", "requires-python", "license", "license-files", "authors",
                "maintainers", "keywords", "classifiers", "urls", "scripts", "gui-scripts", "entry-points", "dependencies",
                "optional-dependencies", "dynamic", "import-names", "import-namespaces")
FURCA_KEYS = ("extras", "groups", "preload")
UV_USED = ("index-url", "extra-index-url", "find-links", "no-index", "index", "sources", "constraint-dependencies",
           "override-dependencies")
# These settle how uv works on a project's own tree, which an environment has not.
UV_WITHOUT_EFFECT = ("dev-dependencies", "default-groups", "package", "managed", "workspace", "cache-dir", "cache-keys", "native-tls",
                     "system-certs", "compile-bytecode", "concurrent-downloads", "concurrent-builds", "concurrent-installs", "preview", "link-mode",
                     "python-downloads", "python-preference", "required-version", "publish-url", "trusted-publishing",
                     "check-url", "build-backend", "environments", "required-environments", "conflicts", "offline", "no-cache")


class SpecError(Exception):
    """What is wrong with a specification, and what to change."""

    def __init__(self, text, suggestion):
        super().__init__(text)
        self.suggestion = suggestion


def _nearest(word, known):
    near = difflib.get_close_matches(word, known, 1, 0.6)
    return " Did you mean '%s'?" % near[0] if near else ""


def _known_keys(table, where, known):
    for key in table:
        if key not in known:
            raise SpecError("%s has no key '%s'" % (where, key),
                            "Remove it or correct its name.%s Known: %s." % (_nearest(key, known), ", ".join(known)))


def _table(parent, key, where):
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise SpecError("%s must be a table" % where, "Write it as [%s] with keys below." % where)
    return value


def _texts(parent, key, where):
    value = parent.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SpecError("%s must be a list of strings" % where, 'Write it as %s = ["…", "…"].' % key)
    return value


def _parse(text):
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SPEC:
        raise SpecError("the specification is larger than %d bytes" % MAX_SPEC, "Give the text of a pyproject.toml only.")
    try:
        table = tomllib.loads(text)
        nul = _has_nul(table)
    except (ValueError, RecursionError) as error:  # no TOML, no Unicode, a number without end, tables too deep
        raise SpecError("the specification is not valid TOML: %s" % error,
                        "Give the text of a pyproject.toml.") from None
    # An escape can bring one, but no name, version or path has it.
    if nul:
        raise SpecError("the specification has a NUL character in a text", "Remove \\u0000 from it.")
    return table


def _has_nul(value):
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    if isinstance(value, list):
        return any(_has_nul(item) for item in value)
    return isinstance(value, str) and "\0" in value


def _hint(text):
    """What to write in place of a requirement that does not parse."""
    if re.search(r"[\w.\]]\s*=\s*[\w.]", text) and "==" not in text:
        return "Pin a version with two equal signs, as in '%s'." % re.sub(r"\s*=\s*", "==", text, count=1)
    if re.match(r"\s*(-e|--editable)\b", text):
        return "Editable installs are not possible; use 'name @ file:///absolute/path'."
    if re.match(r"\s*([./~]|[a-z+]+://)", text):
        return "Name the package: 'name @ file:///absolute/path' or 'name @ https://…'."
    return "Write it by PEP 508, for example 'numpy>=1.26,<2' or 'pandas[parquet]==2.2.*'."


def _hashes(text, where):
    """Splits pip's form 'name==1.0 --hash=sha256:…' into the requirement and its hashes."""
    head, *rest = re.split(r"\s+--hash[=\s]", text)
    for one in rest:
        if not re.fullmatch(r"sha(256|384|512):[0-9a-f]+\s*", one):
            raise SpecError("%s: '--hash=%s' is no hash" % (where, one), "Write --hash=sha256: and the digest in hexadecimal.")
    return head, sorted({one.strip() for one in rest})


class Sources:
    """[tool.uv.sources]: where a named package comes from."""

    def __init__(self, table):
        self.by_name = {}
        for name, source in table.items():
            where = "tool.uv.sources.%s" % name
            if not isinstance(source, dict):
                raise SpecError("%s must be a table" % where, 'Write it as {path = "/…"}, {url = "…"} or {git = "…", rev = "…"}.')
            self.by_name[canonicalize_name(name)] = self._url(source, where)

    @staticmethod
    def _url(source, where):
        kind = next((key for key in ("path", "url", "git") if key in source), None)
        allowed = {"path": {"path"}, "url": {"url", "subdirectory"}, "git": {"git", "rev", "tag", "branch", "subdirectory"}}
        if kind is None or set(source) - allowed[kind] or not all(isinstance(value, str) for value in source.values()):
            raise SpecError("%s is a source that is not supported" % where,
                            "Use path (absolute), url or git with rev, tag or branch, alone and without markers.")
        tail = "#subdirectory=%s" % source["subdirectory"] if "subdirectory" in source else ""
        if kind == "path":
            if not os.path.isabs(source["path"]):
                raise SpecError("%s: the path '%s' is not absolute" % (where, source["path"]),
                                "A specification has no folder of its own; give the absolute path.")
            return "file://" + source["path"]
        if kind == "url":
            return source["url"] + tail
        rev = source.get("rev") or source.get("tag") or source.get("branch")
        return "git+%s%s%s" % (source["git"], "@" + rev if rev else "", tail)


def _bounded(text, where):
    """What reads a requirement takes time by the square of its length."""
    if len(re.split(r"--hash", text, maxsplit=1)[0]) > MAX_REQUIREMENT or re.search(r"\s{100}", text):
        raise SpecError("%s: '%s…' is too long" % (where, text[:40].strip()), "Write each requirement in at most %d characters." % MAX_REQUIREMENT)


def requirement(text, where, sources=None):
    """The canonical form of one requirement, as pip and uv read it from a file."""
    _bounded(text, where)
    head, hashes = _hashes(text, where)
    try:
        parsed = Requirement(head)
    except (InvalidRequirement, RecursionError) as error:
        raise SpecError("%s: '%s' is no valid requirement: %s" % (where, text, " ".join(str(error).split())),
                        _hint(head)) from None
    name = canonicalize_name(parsed.name)
    if parsed.url and urlsplit(parsed.url).scheme in ("", "file") and not urlsplit(parsed.url).path.startswith("/"):
        raise SpecError("%s: '%s' names a relative path" % (where, text), "Use 'name @ file:///absolute/path'.")
    url = parsed.url or (sources.by_name.get(name) if sources else None)
    extras = "[%s]" % ",".join(sorted(canonicalize_name(extra) for extra in parsed.extras)) if parsed.extras else ""
    specifier = " @ %s" % url if url else str(parsed.specifier)
    marker = "%s; %s" % (" " if url else "", parsed.marker) if parsed.marker else ""
    return name + extras + specifier + marker + "".join(" --hash=%s" % one for one in hashes)


def _collect_extras(project, wanted):
    """The requirements of the extras named, those of the project's own extras within them followed."""
    table = _table(project, "optional-dependencies", "project.optional-dependencies")
    by_name = {canonicalize_name(key): key for key in table}
    own = canonicalize_name(project.get("name", ""))
    out, todo, seen = [], [(name, "tool.furca.extras") for name in wanted], set()
    while todo:
        name, where = todo.pop()
        key = by_name.get(canonicalize_name(name))
        if key is None:
            raise SpecError("%s names the extra '%s', which project.optional-dependencies has not" % (where, name),
                            "Correct it.%s There are: %s." % (_nearest(name, list(table)), ", ".join(table) or "none"))
        if key in seen:
            continue
        seen.add(key)
        where = "project.optional-dependencies.%s" % key
        for text in _texts(table, key, where):
            try:
                parsed = Requirement(_hashes(text, where)[0])
            except InvalidRequirement:
                parsed = None
            if parsed and own and canonicalize_name(parsed.name) == own:
                todo += [(extra, where) for extra in parsed.extras]
            else:
                out.append((text, where))
    return out


def _collect_group(groups, by_name, name, where, chain):
    """The requirements of one PEP 735 group, with those it includes."""
    key = by_name.get(canonicalize_name(name))
    if key is None:
        raise SpecError("%s names the group '%s', which dependency-groups has not" % (where, name),
                        "Correct it.%s There are: %s." % (_nearest(name, list(groups)), ", ".join(groups) or "none"))
    if key in chain:
        raise SpecError("dependency-groups include one another: %s" % " -> ".join(chain + [key]), "Take one include-group out.")
    where = "dependency-groups.%s" % key
    if not isinstance(groups[key], list):
        raise SpecError("%s must be a list" % where, 'Write it as %s = ["…", {include-group = "…"}].' % key)
    out = []
    for item in groups[key]:
        if isinstance(item, str):
            out.append((item, where))
        elif isinstance(item, dict) and set(item) == {"include-group"} and isinstance(item["include-group"], str):
            out += _collect_group(groups, by_name, item["include-group"], where, chain + [key])
        else:
            raise SpecError("%s holds an entry that is neither a requirement nor an include-group" % where,
                            'Use strings and {include-group = "name"} only.')
    return out


def _location(text, where):
    if re.match(r"[a-z]+://", text) or os.path.isabs(text):
        return text
    raise SpecError("%s: '%s' is neither a URL nor an absolute path" % (where, text),
                    "A specification has no folder of its own; give the absolute path or a URL.")


def _index(uv):
    """The index settings, those of pip's spelling and [[tool.uv.index]] together."""
    default, extra = uv.get("index-url"), list(_texts(uv, "extra-index-url", "tool.uv.extra-index-url"))
    entries = uv.get("index", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and isinstance(entry.get("url"), str) for entry in entries):
        raise SpecError("tool.uv.index must be a list of tables with a url", 'Write [[tool.uv.index]] and url = "https://…".')
    for entry in entries:
        if entry.get("explicit"):
            raise SpecError("an index that is explicit is not supported: %s" % entry["url"], "Remove `explicit = true`.")
        if entry.get("format") == "flat":
            uv.setdefault("find-links", []).append(entry["url"])
        elif entry.get("default"):
            default = entry["url"]
        else:
            extra.append(entry["url"])
    if default is not None and not isinstance(default, str):
        raise SpecError("tool.uv.index-url must be a string", 'Write index-url = "https://…".')
    no_index = uv.get("no-index", False)
    if not isinstance(no_index, bool):
        raise SpecError("tool.uv.no-index must be true or false", "Write no-index = true.")
    return {"default": default and _location(default, "tool.uv.index-url"),
            "extra": [_location(url, "tool.uv.extra-index-url") for url in extra],
            "find_links": [_location(url, "tool.uv.find-links") for url in _texts(uv, "find-links", "tool.uv.find-links")],
            "no_index": no_index}


def _specifier(project):
    text = project.get("requires-python", "")
    if not isinstance(text, str):
        raise SpecError("project.requires-python must be a string", 'Write requires-python = ">=3.9".')
    if len(text) > MAX_REQUIREMENT:
        raise SpecError("project.requires-python is too long", "Write it in at most %d characters." % MAX_REQUIREMENT)
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise SpecError("project.requires-python '%s' is no valid version specifier" % text,
                        "Write it by PEP 440, for example '>=3.9' or '==3.12.*'.") from None


def _interpreter(project, cache_path):
    specifier = _specifier(project)
    found = envpython.find(cache_path)
    chosen = envpython.choose(found, specifier)
    if chosen is None:
        raise SpecError("no interpreter found on this machine meets requires-python '%s'" % specifier,
                        "Found: %s. Ask for one of these versions, or install one that does (CPython %d.%d to %d.%d) where PATH, "
                        "pyenv or uv has it." % ((envpython.describe(found),) + envpython.OLDEST + envpython.NEWEST))
    return {"executable": chosen["executable"], "version": "%d.%d" % envpython.version_of(chosen)[:2], "soabi": chosen["soabi"]}


def _gather(document, project, furca):
    """(text, where) of every requirement that is asked for."""
    wanted = [(text, "project.dependencies") for text in _texts(project, "dependencies", "project.dependencies")]
    wanted += _collect_extras(project, _texts(furca, "extras", "tool.furca.extras"))
    groups = _table(document, "dependency-groups", "dependency-groups")
    by_name = {canonicalize_name(key): key for key in groups}
    for name in _texts(furca, "groups", "tool.furca.groups"):
        wanted += _collect_group(groups, by_name, name, "tool.furca.groups", [])
    return wanted


def _sections(document):
    """The tables that matter, their keys checked: project, tool.furca, tool.uv."""
    if "project" not in document and "dependency-groups" not in document:
        raise SpecError("the specification has no [project] table", 'Begin it with [project] and dependencies = ["…"].'
                        + _nearest(next(iter(document), ""), ["project"]))
    project, tool = _table(document, "project", "project"), _table(document, "tool", "tool")
    _known_keys(project, "[project]", PROJECT_KEYS)
    if not isinstance(project.get("name", ""), str):
        raise SpecError("project.name must be a string", 'Write name = "…".')
    for key in ("dependencies", "optional-dependencies", "requires-python"):
        if key in _texts(project, "dynamic", "project.dynamic"):
            raise SpecError("project.dynamic names '%s', which only a source tree could compute" % key, "Write it out in [project].")
    furca, uv = _table(tool, "furca", "tool.furca"), _table(tool, "uv", "tool.uv")
    _known_keys(furca, "[tool.furca]", FURCA_KEYS)
    _known_keys({key: None for key in uv if key not in UV_WITHOUT_EFFECT}, "[tool.uv] as furca reads it", UV_USED)
    return project, furca, uv


def _preload(furca):
    modules = _texts(furca, "preload", "tool.furca.preload")
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise SpecError("tool.furca.preload: '%s' is no module's name" % module, 'Write it as preload = ["numpy", "pandas"].')
    return list(dict.fromkeys(modules))


def normalise(text, cache_path=None):
    """{canonical, digest, python, name} of a specification, or SpecError."""
    document = _parse(text)
    project, furca, uv = _sections(document)
    sources = Sources(_table(uv, "sources", "tool.uv.sources"))
    forms = {where: sorted({requirement(one, "tool.uv.%s" % where) for one in _texts(uv, where, "tool.uv.%s" % where)})
             for where in ("constraint-dependencies", "override-dependencies")}
    requirements = sorted({requirement(one, where, sources) for one, where in _gather(document, project, furca)})
    pinned = [one for one in requirements if " --hash=" in one]
    if pinned and len(pinned) != len(requirements):
        raise SpecError("some requirements have hashes and some have none", "Give every requirement its --hash, or none.")
    canonical = {"format": FORMAT, "requirements": requirements, "constraints": forms["constraint-dependencies"],
                 "overrides": forms["override-dependencies"], "index": _index(uv), "preload": _preload(furca),
                 "python": _interpreter(project, cache_path)}
    packed = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return {"canonical": packed, "digest": hashlib.sha256(packed.encode()).hexdigest(), "python": canonical["python"]["version"],
            "name": project.get("name") or None}
