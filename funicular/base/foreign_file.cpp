#include "funicular/base/foreign_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "funicular/base/decompressor.h"
#include "funicular/base/error.h"

namespace funicular {

namespace {

using namespace std::string_view_literals;

/// `print`, of compressed files, writes what is in the file {0} to standard output; `remedy` makes a file of {0}, or says what to do.
/// A question mark in `mark`, the first bytes, stands for a digit.
struct Kind {
  std::string_view name, suffix, mark;
  const char *remedy, *print = nullptr;
};

constexpr const char* kDownload =
    "a page was saved in the file's place; download the file itself again, and log in first if it asks for "
    "that";
constexpr const char* kLfs = "the file itself was not downloaded; run git lfs pull in its folder";
constexpr const char* kParquet =
    "run pip install pyarrow for python3, or for the Python in FUNICULAR_PYTHON, and let the file's name end "
    "in .parquet. Or convert "
    "it: python3 -c \"import pandas; pandas.read_parquet('{0}').to_csv('{0}.csv', index=False)\"";
constexpr const char* kFeather =
    "run pip install pyarrow for python3, or for the Python in FUNICULAR_PYTHON, and let the file's name end "
    "in .arrow. Or convert "
    "it: python3 -c \"import pandas; pandas.read_feather('{0}').to_csv('{0}.csv', index=False)\"";
constexpr const char* kArrowStream =
    "run pip install pyarrow for python3, or for the Python in FUNICULAR_PYTHON, and let the file's name end "
    "in .arrow. Or convert "
    "it: python3 -c \"import datasets; datasets.Dataset.from_file('{0}').to_csv('{0}.csv')\"";
constexpr const char* kExcel =
    "save the sheet as CSV UTF-8, or convert it: python3 -c \"import pandas; "
    "pandas.read_excel('{0}').to_csv('{0}.csv', index=False)\"";
constexpr const char* kTorch =
    "load it with the program that wrote it, and save its tensors with safetensors.torch.save_file";
constexpr const char* kOriginal = "take the model's original folder with config.json and model.safetensors";
constexpr const char* kNoText = "give a file of text, CSV, TSV or JSON lines";

/// Files that decompressor.h knows by their marks.
constexpr Kind kGzip{"gzip", ".gz", ""sv, "gunzip -k {0}", "gunzip -c < {0}"};
constexpr Kind kZstd{"zstd", ".zst", ""sv, "unzstd -k {0}", "unzstd -c < {0}"};

constexpr std::array kKinds{
    Kind{"bzip2", ".bz2", "BZh?1AY&SY"sv, "bunzip2 -k {0}", "bunzip2 -c < {0}"},
    Kind{"xz", ".xz", "\xFD\x37zXZ\0"sv, "unxz -k {0}", "unxz -c < {0}"},
    Kind{"zip", ".zip", "PK\x03\x04"sv, "unzip {0}", "unzip -p {0}"},
    Kind{"7z", ".7z", "7z\xBC\xAF\x27\x1C"sv, "7z x {0}", "7z x -so {0}"},
    Kind{"a Git LFS pointer", "", "version https://git-lfs.github.com/spec/v"sv, kLfs},
    Kind{"a Git LFS pointer", "", "version https://hawser.github.com/spec/v"sv, kLfs},
    Kind{"a Parquet file", ".parquet", "PAR1\x15"sv, kParquet},
    Kind{"an Arrow file", ".arrow", "ARROW1\0\0"sv, kFeather},
    Kind{"an Arrow stream", "", "\xFF\xFF\xFF\xFF"sv, kArrowStream},
    Kind{"a Feather file", ".feather", "FEA1\0"sv, kFeather},
    Kind{"an Excel file", ".xls", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, kExcel},
    Kind{"a PDF file", ".pdf", "%PDF-"sv, "take the text out of it: pdftotext {0} {0}.txt"},
    Kind{"an RTF file", ".rtf", "{\\rtf"sv, "save it as plain text (UTF-8)"},
    Kind{"an ORC file", ".orc", "ORC\x08"sv, kNoText},
    Kind{"an Avro file", ".avro", "Obj\x01"sv, kNoText},
    Kind{"an SQLite database", ".sqlite", "SQLite format 3\0"sv,
         "export a table: sqlite3 -header -csv {0} 'SELECT * FROM NAME' > {0}.csv; sqlite3 {0} .tables lists "
         "the names"},
    Kind{"an HDF5 file", ".h5", "\x89HDF\r\n\x1A\n"sv, kTorch},
    Kind{"a NumPy array", ".npy", "\x93NUMPY"sv, kNoText},
    Kind{"a GGUF model", "", "GGUF\x02\0"sv, kOriginal},
    Kind{"a GGUF model", ".gguf", "GGUF\x03\0"sv, kOriginal},
    Kind{"a Python pickle", "", "\x80\x02"sv, kTorch},
    Kind{"a Python pickle", "", "\x80\x03"sv, kTorch},
    Kind{"a Python pickle", "", "\x80\x04"sv, kTorch},
    Kind{"a Python pickle", ".pkl", "\x80\x05"sv, kTorch}};

constexpr Kind kExcelBook{"an Excel file", ".xlsx", ""sv, kExcel};
constexpr Kind kWordFile{"a Word file", ".docx", ""sv, "save it as plain text (UTF-8)"};
constexpr Kind kOpenDocument{"an OpenDocument file", ".ods", ""sv, "save the sheet as CSV (UTF-8)"};
constexpr Kind kTorchFile{"a PyTorch file", ".pt", ""sv, kTorch};
constexpr Kind kPage{"a web page (HTML)", "", ""sv, kDownload};
constexpr Kind kServerMessage{"the message of a server that has no such file", "", ""sv, kDownload};
constexpr Kind kZeros{"filled with zero bytes", "", ""sv,
                      "it was not written or downloaded to its end; take it from its source again"};
constexpr Kind kTar{"a tar archive", ".tar", ""sv, "unpack it first: tar xf {0}"};
constexpr Kind kSafetensors{"a safetensors file", "", ""sv, kNoText};

constexpr std::array kOfNames{kGzip, kZstd, kExcelBook, kWordFile, kOpenDocument, kTar};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// `small`, in small letters, is compared with ASCII letters in either case.
bool begins_with(std::string_view text, std::string_view small) {
  return text.size() >= small.size() &&
         std::equal(small.begin(), small.end(), text.begin(), [](char a, char b) { return a == lower(b); });
}

bool has_suffix(const std::string& name, std::string_view suffix) {
  return !suffix.empty() && name.size() >= suffix.size() &&
         begins_with(std::string_view(name).substr(name.size() - suffix.size()), suffix);
}

/// Whether both agree up to the end of the shorter one. A '?' in `mark` stands for a digit.
bool agrees(std::string_view begin, std::string_view mark) {
  for (size_t i = 0; i < std::min(begin.size(), mark.size()); ++i)
    if (mark[i] == '?' ? begin[i] < '0' || begin[i] > '9' : begin[i] != mark[i]) return false;
  return true;
}

/// The kind of a zip archive, by the name of its first file; null if that name tells nothing.
const Kind* kind_of_zip(std::string_view bytes) {
  constexpr size_t kNameSize = 26, kName = 30;
  if (bytes.size() < kName) return nullptr;
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(bytes[at])); };
  const std::string_view first = bytes.substr(kName, byte(kNameSize) | byte(kNameSize + 1) << 8);
  if (first.ends_with("/data.pkl")) return &kTorchFile;
  if (first == "mimetype") return &kOpenDocument;
  if (first.starts_with("xl/")) return &kExcelBook;
  if (first.starts_with("word/")) return &kWordFile;
  if (first != "[Content_Types].xml" && first != "_rels/.rels" && !first.starts_with("docProps/"))
    return nullptr;
  return bytes.find("word/") != bytes.npos && bytes.find("xl/") == bytes.npos ? &kWordFile : &kExcelBook;
}

/// A page or a message that a server sends in a file's place, or null.
const Kind* kind_of_page(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  bytes.remove_prefix(std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size()));
  for (const std::string_view begin : {"<!doctype html"sv, "<html"sv, "<head>"sv})
    if (begins_with(bytes, begin)) return &kPage;
  if (begins_with(bytes, "<?xml"))
    for (const std::string_view mark : {"<html"sv, "<Error>"sv})
      if (bytes.substr(0, 512).find(mark) != bytes.npos) return &kPage;
  constexpr size_t kLongest = 120;  // a message stands alone
  if (bytes.size() <= kLongest)
    for (const std::string_view begin :
         {"entry not found"sv, "404: not found"sv, "repository not found"sv, "invalid username or password"sv,
          "{\"error\":\"repository not found"sv, "{\"error\":\"invalid username or password"sv,
          "access to model "sv, "accessdenied"sv})
      if (begins_with(bytes, begin)) return &kServerMessage;
  return nullptr;
}

/// Whether eight bytes of a length and a JSON object are there.
bool is_safetensors(std::string_view bytes) {
  if (bytes.size() < 10 || bytes[8] != '{' || (bytes[9] != '"' && bytes[9] != '}')) return false;
  return bytes.substr(4, 4) == "\0\0\0\0"sv;
}

/// Whether the length behind the mark of an Arrow stream is none.
bool is_no_stream(const Kind& kind, std::string_view bytes) {
  constexpr size_t kHighest = 7;  // byte of the length
  return kind.remedy == kArrowStream && bytes.size() > kHighest && bytes[kHighest] != '\0';
}

const Kind* kind_of(std::string_view bytes, std::string_view expected) {
  constexpr size_t kLooked = 4096, kTarMark = 257;
  bytes = bytes.substr(0, kLooked);
  if (bytes.empty()) return nullptr;
  if (const std::string_view program = compressor_of(bytes); !program.empty())
    return program == kGzip.name ? &kGzip : &kZstd;
  for (const Kind& kind : kKinds)
    if (bytes.size() >= kind.mark.size() && agrees(bytes, kind.mark) && !is_no_stream(kind, bytes)) {
      const Kind* const inner = kind.name == "zip" ? kind_of_zip(bytes) : nullptr;
      return inner ? inner : &kind;
    }
  if (bytes.size() > kTarMark && bytes.substr(kTarMark).starts_with("ustar")) return &kTar;
  constexpr size_t kFewest = 16;
  if (bytes.size() >= kFewest && bytes.find_first_not_of('\0') == bytes.npos) return &kZeros;
  return expected == "text" && is_safetensors(bytes) ? &kSafetensors : nullptr;
}

[[noreturn]] void refuse(const Kind& kind, const std::string& name, std::string_view expected) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(name, error);
  const auto line = [](const char* command, const std::string& file) {
    return fmt::format(fmt::runtime(command), file);
  };
  if (!kind.print)
    throw InputError("file", "{} is {}; expected {}: {}", name, kind.name, expected,
                     line(kind.remedy, is_file ? name : "FILE"));
  std::string remedy;
  if (!is_file)
    remedy = line(kind.print, "FILE") + " | funicular …";
  else if (has_suffix(name, kind.suffix))
    remedy = line(kind.remedy, name);
  else
    remedy = fmt::format("{} > {}.txt", line(kind.print, name), name);
  const bool lacks_library = (kind.name == "gzip" || kind.name == "zstd") && !unpacks(kind.name);
  throw InputError("file", "{} is compressed ({}); expected {}{}: unpack it first: {}", name, kind.name,
                   expected, lacks_library ? " (this build has no library for such files)" : "", remedy);
}

}  // namespace

void refuse_foreign(std::string_view bytes, const std::string& name, std::string_view expected) {
  if (const Kind* const kind = kind_of(bytes, expected)) refuse(*kind, name, expected);
  if (const Kind* const kind = kind_of_page(bytes)) refuse(*kind, name, expected);
}

void refuse_foreign_stream(std::string_view bytes, const std::string& name) {
  if (const Kind* const kind = kind_of(bytes, "text")) refuse(*kind, name, "text");
}

bool is_columnar(std::string_view begin) {
  const Kind* const kind = kind_of(begin, "text");
  return kind && (kind->remedy == kParquet || kind->remedy == kFeather || kind->remedy == kArrowStream);
}

bool may_be_foreign(std::string_view begin) {
  return may_be_compressed(begin) || std::any_of(kKinds.begin(), kKinds.end(), [&](const Kind& kind) {
           return begin.size() < kind.mark.size() && agrees(begin, kind.mark);
         });
}

void refuse_foreign_name(const std::string& name) {
  for (const Kind& kind : kKinds)
    if (has_suffix(name, kind.suffix)) refuse(kind, name, "text");
  for (const Kind& kind : kOfNames)
    if (has_suffix(name, kind.suffix)) refuse(kind, name, "text");
}

}  // namespace funicular
