"""A hook of mkdocs: links that leave docs/ lead to copies of these files, as plain text, in the site."""

import os
import pathlib
import re

from mkdocs.structure.files import File

LINK = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)]*)?\)")


def outside(page, target, docs):
    """The file that a link of a page names, relative to the root of the clone, or None if it is in docs/ or does not exist."""
    path = pathlib.Path(os.path.normpath(docs / pathlib.Path(page).parent / target))
    return None if path.is_relative_to(docs) or not path.is_file() else path.relative_to(docs.parent)


def on_files(files, config):
    docs = pathlib.Path(config["docs_dir"])
    for page in list(files.documentation_pages()):
        for target, _ in LINK.findall(page.content_string):
            source = outside(page.src_uri, target, docs)
            if source and not files.get_file_from_path(f"sources/{source}.txt"):
                files.append(File.generated(config, f"sources/{source}.txt", abs_src_path=str(docs.parent / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    docs = pathlib.Path(config["docs_dir"])

    def inside(link):
        source = outside(page.file.src_uri, link[1], docs)
        up = "../" * page.file.src_uri.count("/")
        return f"]({up}sources/{source}.txt)" if source else link[0]
    return LINK.sub(inside, markdown)
