"""Checks that each link of a rendered site leads to a file, and to an id in it.   links.py DIRECTORY"""
import pathlib
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        self.links += [attrs[name] for name in ("href", "src") if attrs.get(name)]


site = pathlib.Path(sys.argv[1]).resolve()
pages = {path: Page(path) for path in site.rglob("*.html")}
wrong, count = [], 0
for path, page in pages.items():
    # It may stand below any path, and has a base of its own.
    if path.name == "404.html":
        continue
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme:
            continue
        count += 1
        to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not to.exists():
            wrong.append(f"{path.relative_to(site)}: {link} leads to nothing")
        elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].ids:
            wrong.append(f"{path.relative_to(site)}: {link} has no such id")
if wrong or count < 1000:
    sys.exit("\n".join([*wrong, f"{count} links were checked"]))
print(f"{len(pages)} pages, {count} links: each leads somewhere")
