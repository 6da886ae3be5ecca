#include "funicular/cli/file_style.h"

#include "funicular/base/text_encoding.h"

namespace funicular::cli {

void FileStyleOptions::declare(Arguments& arguments, bool tables) {
  arguments
      .add("encoding", "NAME", encoding, Effect::result,
           "convert the input from this encoding (GB18030, UTF-16, WINDOWS-1252, …; iconv -l lists them)")
      .default_text("UTF-8");
  if (!tables) return;
  arguments
      .add("quotes", "NAME", quotes, Effect::result,
           "csv: a quote at a field's start opens a quoted field; none: quotes are text; auto: csv, or for "
           "TSV whichever fits "
           "the rows")
      .choices({"auto", "csv", "none"});
}

format::FileStyle FileStyleOptions::style() const {
  format::FileStyle style;
  if (!is_utf8_name(encoding)) {
    const TextConverter checked(encoding);
    style.encoding = encoding;
  }
  style.quotes = format::quotes_from_name(quotes);
  return style;
}

}  // namespace funicular::cli
