#pragma once
// Files of another kind than the one that is expected: Git LFS pointers, web pages, archives, tables of other programs, files of
// zero bytes. They are known by their first bytes and refused with the line that helps.

#include <string>
#include <string_view>

namespace funicular {

/// Throws InputError where `bytes`, the contents of `name` or as much of them as there is, begin as a file of another kind does.
/// The message names the kind, what is `expected` ("text", "weights") and the remedy. Only the first kilobytes are looked at.
void refuse_foreign(std::string_view bytes, const std::string& name, std::string_view expected = "text");

/// As refuse_foreign, for what arrives on a pipe: a web page is text there, for the sender means it.
void refuse_foreign_stream(std::string_view bytes, const std::string& name);

/// Whether a stream that begins with these bytes may still turn out to be foreign: more of it is needed to tell.
bool may_be_foreign(std::string_view begin);

/// Whether a file that begins with these bytes is one of Parquet, Arrow or Feather.
bool is_columnar(std::string_view begin);

/// Throws InputError where the name ends as names of such files do (".gz", ".parquet", in either case).
void refuse_foreign_name(const std::string& name);

}  // namespace funicular
