#include "funicular/data/token_store.h"

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/base/mapped_text.h"
#include "funicular/data/store_files.h"
#include "funicular/data/store_shares.h"
#include "funicular/data/store_verification.h"
#include "funicular/text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace funicular::data {

static_assert(std::endian::native == std::endian::little, "the arrays of a token store are little-endian");

namespace {

constexpr const char* kFormat = "funicular token store";
// Far above any real store and far below where a product of two counts could overflow.
constexpr uint64_t kMaxCount = uint64_t{1} << 48;

constexpr const char* kLabelKinds[] = {"none", "classes", "values",     "sets",
                                       "tags", "shares",  "set_shares", "numbers"};

uint64_t hash_from_text(const std::string& text, const char* key, std::string_view origin) {
  const bool valid = text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!valid)
    throw InputError("token store", "{}: \"{}\" should be 16 hexadecimal digits, found \"{}\"", origin, key,
                     text);
  return std::stoull(text, nullptr, 16);
}

uint64_t parse_hash(const Json& object, const char* key, std::string_view origin) {
  return hash_from_text(json_get<std::string>(object, key, origin), key, origin);
}

uint64_t parse_count(const Json& object, const char* key, uint64_t low, uint64_t high,
                     std::string_view origin) {
  const auto found = object.find(key);
  // get<uint64_t> would turn -1 or 1.5 into some number.
  const bool valid = found != object.end() && found->is_number_unsigned() && found->get<uint64_t>() >= low &&
                     found->get<uint64_t>() <= high;
  if (!valid)
    throw InputError("token store", "{}: \"{}\" should be a whole number from {} to {}, found {}", origin,
                     key, low, high, found == object.end() ? "nothing" : found->dump().substr(0, 80));
  return found->get<uint64_t>();
}

const Json& member(const Json& object, const char* key, std::string_view origin) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_object())
    throw InputError("token store", "{}: the object \"{}\" is missing", origin, key);
  return *found;
}

LabelKind parse_label_kind(const Json& labels, std::string_view origin) {
  const auto name = json_get<std::string>(labels, "kind", origin);
  for (size_t kind = 0; kind < std::size(kLabelKinds); ++kind)
    if (name == kLabelKinds[kind]) return static_cast<LabelKind>(kind);
  throw InputError("token store", "{}: the kind of labels should be one of {}, found \"{}\"", origin,
                   fmt::join(kLabelKinds, ", "), name);
}

void require_format(const Json& json, std::string_view origin) {
  if (!json.is_object() || json_get_or<std::string>(json, "format", "", origin) != kFormat)
    throw InputError("token store", "{}: this is not the meta.json of a token store", origin);
  const uint64_t version = parse_count(json, "version", 0, UINT64_MAX, origin);
  if (version != StoreMeta::kVersion)
    throw InputError("token store",
                     "{}: format version {}, but this program reads version {}; make the store again with "
                     "`funicular tokenize`",
                     origin, version, StoreMeta::kVersion);
}

// The last line but one of meta.json: the checksum of all text before it.
constexpr std::string_view kSealBegin = ",\n \"xxh3\": \"", kSealEnd = "\"\n}\n";
constexpr size_t kSealBytes = kSealBegin.size() + 16 + kSealEnd.size();

void check_seal(std::string_view text, const Json& json, std::string_view origin) {
  const std::string_view sealed = text.substr(0, text.size() - std::min(text.size(), kSealBytes));
  const std::string_view seal = text.substr(sealed.size());
  if (seal.starts_with(kSealBegin) && seal.ends_with(kSealEnd)) {
    const std::string_view expected = seal.substr(kSealBegin.size(), 16);
    const std::string found = hash_text(hash_bytes(sealed));
    if (found != expected)
      throw InputError(
          "token store",
          "{}: damaged, or changed by hand: what stands before its last line has the checksum {} "
          "(XXH3), expected {}; {}",
          origin, found, expected, kStoreRemedy);
  } else if (json.contains("xxh3") || json.contains("block_bytes")) {  // older stores have neither
    throw InputError("token store",
                     "{}: damaged, or changed by hand: it should end with its own checksum (\"xxh3\"); {}",
                     origin, kStoreRemedy);
  }
}

std::vector<uint64_t> parse_blocks(const Json& entry, std::string_view name, uint64_t bytes,
                                   uint64_t block_bytes, std::string_view origin) {
  std::vector<uint64_t> blocks;
  if (block_bytes == 0) return blocks;
  for (const auto& text : json_get<std::vector<std::string>>(entry, "blocks", origin))
    blocks.push_back(hash_from_text(text, "blocks", origin));
  const uint64_t needed = bytes / block_bytes + (bytes % block_bytes != 0);
  if (blocks.size() != needed)
    throw InputError("token store",
                     "{}: expected {} checksums for the {} bytes of {} in blocks of {}, found {}", origin,
                     needed, bytes, name, block_bytes, blocks.size());
  return blocks;
}

std::vector<StoreMeta::File> parse_files(const Json& files, const StoreMeta& meta, std::string_view origin) {
  std::vector<StoreMeta::File> parsed;
  for (const auto& [name, bytes] : store_file_sizes(meta)) {
    const Json& entry = member(files, name, origin);
    const uint64_t stated = parse_count(entry, "bytes", 0, UINT64_MAX, origin);
    if (stated != bytes)
      throw InputError("token store", "{}: {} is said to have {} bytes, but the counts need {}", origin, name,
                       stated, bytes);
    parsed.push_back({name, bytes, parse_hash(entry, "xxh3", origin),
                      parse_blocks(entry, name, bytes, meta.block_bytes, origin)});
  }
  return parsed;
}

}  // namespace

std::vector<StoreFileSize> store_file_sizes(const StoreMeta& meta) {
  std::vector<StoreFileSize> sizes = {
      {kTokensFile, meta.tokens * static_cast<uint64_t>(meta.token_bytes)},
      {kRowsFile, (meta.rows * static_cast<uint64_t>(meta.columns) + 1) * sizeof(uint64_t)},
      {kDocumentsFile, (meta.documents + 1) * sizeof(uint64_t)},
      {kWordsFile, (meta.tokens + 7) / 8},
  };
  if (meta.labels == LabelKind::classes) sizes.push_back({kLabelsFile, meta.rows * sizeof(int32_t)});
  if (meta.labels == LabelKind::values) sizes.push_back({kLabelsFile, meta.rows * sizeof(double)});
  if (has_label_lists(meta.labels)) {
    sizes.push_back({kLabelsFile, meta.set_labels * sizeof(int32_t)});
    sizes.push_back({kLabelRowsFile, (meta.rows + 1) * sizeof(uint64_t)});
  }
  if (has_shares(meta.labels))
    sizes.push_back({kLabelsFile, meta.rows * meta.label_names.size() * sizeof(double)});
  if (meta.weights) sizes.push_back({kWeightsFile, meta.rows * sizeof(double)});
  return sizes;
}

std::string write_store_meta(const StoreMeta& meta) {
  OrderedJson files;
  for (const auto& file : meta.files) {
    files[file.name] = {{"bytes", file.bytes}, {"xxh3", hash_text(file.checksum)}};
    if (meta.block_bytes == 0) continue;
    OrderedJson& blocks = files[file.name]["blocks"] = OrderedJson::array();
    for (const uint64_t block : file.blocks) blocks.push_back(hash_text(block));
  }
  OrderedJson json = {
      {"format", kFormat},
      {"version", StoreMeta::kVersion},
      {"tokenizer",
       {{"fingerprint", hash_text(meta.tokenizer_fingerprint)},
        {"description", meta.tokenizer_description},
        {"vocabulary_size", meta.vocabulary_size}}},
      {"token_type", meta.token_bytes == 2 ? "uint16" : "uint32"},
      {"columns", meta.columns},
      {"rows", meta.rows},
      {"documents", meta.documents},
      {"tokens", meta.tokens},
      {"unknown_tokens", meta.unknown_tokens},
      {"longest_row", meta.longest_row},
      {"labels", {{"kind", kLabelKinds[static_cast<int>(meta.labels)]}, {"names", meta.label_names}}},
  };
  if (has_label_lists(meta.labels)) json["labels"]["count"] = meta.set_labels;
  if (meta.weights) json["labels"]["weights"] = true;
  if (meta.block_bytes > 0) json["block_bytes"] = meta.block_bytes;
  json["files"] = files;
  // A description or a label may have bytes that are not UTF-8, which must not make the store unreadable.
  return seal_store_meta(json_text(json, 1));
}

std::string seal_store_meta(std::string_view object) {
  const std::string_view open = object.substr(0, object.rfind("\n}"));
  return fmt::format("{}{}{}{}", open, kSealBegin, hash_text(hash_bytes(open)), kSealEnd);
}

StoreMeta read_store_meta(std::string_view text, std::string_view origin) {
  const Json json = parse_json(text, origin);
  require_format(json, origin);
  check_seal(text, json, origin);
  StoreMeta meta;
  const Json& tokenizer = member(json, "tokenizer", origin);
  meta.tokenizer_fingerprint = parse_hash(tokenizer, "fingerprint", origin);
  meta.tokenizer_description = json_get_or<std::string>(tokenizer, "description", "", origin);
  meta.vocabulary_size =
      static_cast<int64_t>(parse_count(tokenizer, "vocabulary_size", 1, INT32_MAX, origin));
  const auto type = json_get<std::string>(json, "token_type", origin);
  if (type != "uint16" && type != "uint32")
    throw InputError("token store", "{}: the token type should be uint16 or uint32, found \"{}\"", origin,
                     type);
  meta.token_bytes = type == "uint16" ? 2 : 4;
  meta.columns = static_cast<int>(parse_count(json, "columns", 1, StoreMeta::kMostColumns, origin));
  meta.rows = parse_count(json, "rows", 0, kMaxCount, origin);
  meta.documents = parse_count(json, "documents", 0, kMaxCount, origin);
  meta.tokens = parse_count(json, "tokens", 0, kMaxCount, origin);
  meta.unknown_tokens = parse_count(json, "unknown_tokens", 0, meta.tokens, origin);
  meta.longest_row = parse_count(json, "longest_row", 0, meta.tokens, origin);
  const Json& labels = member(json, "labels", origin);
  meta.labels = parse_label_kind(labels, origin);
  meta.label_names = json_get<std::vector<std::string>>(labels, "names", origin);
  if (has_label_lists(meta.labels)) meta.set_labels = parse_count(labels, "count", 0, kMaxCount, origin);
  if (has_shares(meta.labels) && meta.label_names.size() > StoreMeta::kMostShares)
    throw InputError("token store", "{}: expected at most {} labels with shares, found {}", origin,
                     StoreMeta::kMostShares, meta.label_names.size());
  meta.weights = json_get_or<bool>(labels, "weights", false, origin);
  if (json.contains("block_bytes")) meta.block_bytes = parse_count(json, "block_bytes", 1, kMaxCount, origin);
  meta.files = parse_files(member(json, "files", origin), meta, origin);
  return meta;
}

namespace {

// Hashes everything that affects readers, but not the formatting of meta.json.
uint64_t store_fingerprint(const StoreMeta& meta) {
  std::vector<uint64_t> parts = {meta.tokenizer_fingerprint, static_cast<uint64_t>(meta.token_bytes),
                                 static_cast<uint64_t>(meta.columns), meta.rows,
                                 static_cast<uint64_t>(meta.labels)};
  for (const auto& file : meta.files) parts.push_back(file.checksum);
  for (const auto& name : meta.label_names) parts.push_back(hash_bytes(name));
  return hash_bytes(parts.data(), parts.size() * sizeof(uint64_t));
}

std::string read_meta_text(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    const bool interrupted = fs::exists(building_folder(folder), ignored);
    throw InputError("token store", "{}: there is no such store{}", folder.string(),
                     interrupted
                         ? "; a build of it was interrupted or is running: run `funicular tokenize` again"
                         : "; make it with `funicular tokenize --output`");
  }
  if (!fs::is_directory(folder, ignored))
    throw InputError("token store",
                     "{}: a token store is a folder, found a file; make one with `funicular tokenize`",
                     folder.string());
  if (!fs::exists(folder / kMetaFile, ignored))
    throw InputError(
        "token store",
        "{}: meta.json is missing, so this is no token store or its build was interrupted; make it with "
        "`funicular tokenize`",
        folder.string());
  return read_text(folder / kMetaFile, "a token store's description");
}

}  // namespace

uint64_t bytes_verified_first() {
  const char* text = std::getenv("FUNICULAR_VERIFY_FIRST");
  const std::string_view wanted = text ? text : "";
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), bytes);
  if (wanted.empty()) return kVerifiedFirst;
  if (error != std::errc() || end != wanted.data() + wanted.size())
    throw InputError("token store", "FUNICULAR_VERIFY_FIRST expects a number of bytes, found \"{}\"", wanted);
  return bytes;
}

std::shared_ptr<const TokenStore> TokenStore::open(const fs::path& folder, const StoreOpenOptions& options) {
  StoreMeta meta = read_store_meta(read_meta_text(folder), (folder / kMetaFile).string());
  const std::shared_ptr<TokenStore> store(new TokenStore(folder, std::move(meta)));
  if (!options.verify) return store;
  std::vector<StoreBlock> own;
  const std::vector<StoreBlock> all = store->blocks();
  for (size_t i = 0; i < all.size(); ++i)
    if (i % static_cast<size_t>(options.parts) == static_cast<size_t>(options.part)) own.push_back(all[i]);
  store->verification_ =
      std::make_unique<const StoreVerification>(folder, std::move(own), options.verify_first);
  store->require_ends();  // after the verification, so that messages name the damaged block if possible
  return store;
}

TokenStore::TokenStore(const fs::path& folder, StoreMeta meta)
    : folder_(folder),
      meta_(std::move(meta)),
      fingerprint_(store_fingerprint(meta_)),
      tokens_(map(kTokensFile)),
      rows_(map(kRowsFile)),
      documents_(map(kDocumentsFile)),
      words_(map(kWordsFile)) {
  if (meta_.labels != LabelKind::none) labels_ = map(kLabelsFile);
  if (has_label_lists(meta_.labels)) label_rows_ = map(kLabelRowsFile);
  if (meta_.weights) weights_ = map(kWeightsFile);
}

TokenStore::~TokenStore() = default;

void TokenStore::require_ends() const {
  const auto rows = rows_.as<uint64_t>(), documents = documents_.as<uint64_t>();
  if (rows.front() != 0 || rows.back() != meta_.tokens)
    damaged(kRowsFile, "its ends do not fit the number of tokens");
  if (documents.front() != 0 || documents.back() != meta_.rows)
    damaged(kDocumentsFile, "its ends do not fit the number of rows");
  if (!has_label_lists(meta_.labels)) return;
  const auto sets = label_rows_.as<uint64_t>();
  if (sets.front() != 0 || sets.back() != meta_.set_labels)
    damaged(kLabelRowsFile, "its ends do not fit the number of labels");
}

MappedFile TokenStore::map(const char* name) const {
  MappedFile file(folder_ / name);
  for (const auto& expected : meta_.files) {
    if (expected.name != name || expected.bytes == file.bytes().size()) continue;
    throw InputError("token store",
                     "{}: expected {} bytes (as meta.json says), found {}; the file was cut or changed: {}",
                     (folder_ / name).string(), expected.bytes, file.bytes().size(), kStoreRemedy);
  }
  return file;
}

void TokenStore::damaged(std::string_view file, std::string_view what) const {
  throw InputError("token store", "{}: damaged: {}; {}", (folder_ / file).string(), what, kStoreRemedy);
}

void TokenStore::require_index(const char* what, int64_t index, uint64_t count) const {
  if (index < 0 || static_cast<uint64_t>(index) >= count)
    throw InputError("token store", "{}: expected a {} from 0 to {}, found {}", folder_.string(), what,
                     static_cast<int64_t>(count) - 1, index);
}

StoreRange TokenStore::range_at(const char* file, const uint64_t* bounds, uint64_t first, uint64_t last,
                                uint64_t limit) const {
  const StoreRange range{bounds[first], bounds[last]};
  if (range.begin > range.end || range.end > limit)
    damaged(file, fmt::format("entries {} and {} are {} and {}, expected ascending numbers up to {}", first,
                              last, range.begin, range.end, limit));
  return range;
}

Sample::Column TokenStore::tokens(StoreRange range) const {
  Sample::Column column;
  column.tokens = meta_.token_bytes == 2
                      ? TokenSpan(tokens_.as<uint16_t>().data() + range.begin, range.size())
                      : TokenSpan(tokens_.as<uint32_t>().data() + range.begin, range.size());
  column.word_starts = {words_.as<uint8_t>().data(), range.begin};
  return column;
}

double TokenStore::label_at(uint64_t row) const {
  if (meta_.labels == LabelKind::none || has_label_lists(meta_.labels) || has_shares(meta_.labels)) return 0;
  if (meta_.labels == LabelKind::values) return labels_.as<double>()[row];
  const int32_t label = labels_.as<int32_t>()[row];
  if (label < 0 || static_cast<size_t>(label) >= meta_.label_names.size())
    damaged(kLabelsFile, fmt::format("row {} has class {}, but there are {} classes", row, label,
                                     meta_.label_names.size()));
  return label;
}

std::span<const int32_t> TokenStore::label_set_at(uint64_t row) const {
  if (!has_label_lists(meta_.labels)) return {};
  const bool ascend = meta_.labels == LabelKind::sets;
  const StoreRange range =
      range_at(kLabelRowsFile, label_rows_.as<uint64_t>().data(), row, row + 1, meta_.set_labels);
  const std::span<const int32_t> labels(labels_.as<int32_t>().data() + range.begin, range.size());
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] < 0 || static_cast<size_t>(labels[i]) >= meta_.label_names.size() ||
        (ascend && i > 0 && labels[i] <= labels[i - 1]))
      damaged(kLabelsFile,
              fmt::format("row {} has the classes {}; expected {} below {}", row, fmt::join(labels, ", "),
                          ascend ? "ascending ones" : "numbers", meta_.label_names.size()));
  return labels;
}

Sample TokenStore::row(int64_t row) const {
  require_index("row", row, meta_.rows);
  Sample sample;
  sample.sample_id = row;
  sample.columns.reserve(static_cast<size_t>(meta_.columns));
  const uint64_t first = static_cast<uint64_t>(row) * static_cast<uint64_t>(meta_.columns);
  for (int column = 0; column < meta_.columns; ++column) {
    const uint64_t entry = first + static_cast<uint64_t>(column);
    sample.columns.push_back(
        tokens(range_at(kRowsFile, rows_.as<uint64_t>().data(), entry, entry + 1, meta_.tokens)));
  }
  sample.label = label_at(static_cast<uint64_t>(row));
  sample.label_set = label_set_at(static_cast<uint64_t>(row));
  if (const auto damage = read_shares(meta_, labels_, weights_, static_cast<uint64_t>(row), sample))
    damaged(damage->file, damage->what);
  return sample;
}

StoreRange TokenStore::document_rows(int64_t document) const {
  require_index("document", document, meta_.documents);
  const uint64_t entry = static_cast<uint64_t>(document);
  return range_at(kDocumentsFile, documents_.as<uint64_t>().data(), entry, entry + 1, meta_.rows);
}

StoreRange TokenStore::document_tokens(int64_t document) const {
  const StoreRange rows = document_rows(document);
  const uint64_t columns = static_cast<uint64_t>(meta_.columns);
  return range_at(kRowsFile, rows_.as<uint64_t>().data(), rows.begin * columns, rows.end * columns,
                  meta_.tokens);
}

RowStarts TokenStore::row_starts(int64_t document, StoreRange tokens) const {
  return row_starts(document, document, tokens);
}

RowStarts TokenStore::row_starts(int64_t first_document, int64_t last_document, StoreRange tokens) const {
  const StoreRange rows{document_rows(first_document).begin, document_rows(last_document).end};
  const uint64_t columns = static_cast<uint64_t>(meta_.columns);
  const auto all = rows_.as<uint64_t>().subspan(rows.begin * columns, rows.size() * columns + 1);
  const auto first = std::upper_bound(all.begin(), all.end(), tokens.begin);
  const auto last = std::lower_bound(first, all.end(), tokens.end);
  return {{first, last}, tokens.begin};
}

void TokenStore::require_tokenizer(uint64_t fingerprint, std::string_view description) const {
  if (fingerprint == meta_.tokenizer_fingerprint) return;
  throw InputError(
      "token store",
      "{}: made with another tokeniser ({}, fingerprint {}) than the model's ({}{}fingerprint {}); make "
      "it again with `funicular tokenize --tokenizer` and the model's folder",
      folder_.string(), meta_.tokenizer_description, hash_text(meta_.tokenizer_fingerprint), description,
      description.empty() ? "" : ", ", hash_text(fingerprint));
}

void TokenStore::require_tokenizer(const text::Tokenizer& tokenizer) const {
  require_tokenizer(tokenizer.fingerprint(), tokenizer.description());
}

bool TokenStore::found_damaged() const {
  return verification_ && verification_->failed();
}

void TokenStore::require_sound() const {
  if (verification_) verification_->wait();
}

void TokenStore::verify() const {
  for (const StoreBlock& block : blocks()) verify_block(folder_, block);
  require_ends();
  verify_contents();
}

/// The blocks of all files. Files that hold offsets come first, as all other reads depend on them.
std::vector<StoreBlock> TokenStore::blocks() const {
  const std::pair<const char*, const MappedFile*> mapped[] = {
      {kDocumentsFile, &documents_},  {kRowsFile, &rows_},       {kLabelsFile, &labels_},
      {kLabelRowsFile, &label_rows_}, {kWeightsFile, &weights_}, {kWordsFile, &words_},
      {kTokensFile, &tokens_}};
  std::vector<StoreBlock> blocks;
  for (const auto& [name, file] : mapped) {
    const auto recorded = std::find_if(meta_.files.begin(), meta_.files.end(),
                                       [name = name](const auto& entry) { return entry.name == name; });
    if (recorded == meta_.files.end()) continue;
    if (meta_.block_bytes == 0) blocks.push_back({name, file->bytes(), 0, 1, 1, recorded->checksum});
    for (size_t i = 0; i < recorded->blocks.size(); ++i) {
      const uint64_t begin = i * meta_.block_bytes;
      const uint64_t size = std::min(meta_.block_bytes, recorded->bytes - begin);
      blocks.push_back({name, file->bytes().subspan(begin, size), begin, i + 1, recorded->blocks.size(),
                        recorded->blocks[i]});
    }
  }
  return blocks;
}

// Checks that the contents are consistent; checksums only show that the files are as the builder wrote them.
void TokenStore::verify_contents() const {
  for (int64_t document = 0; document < documents(); ++document) document_tokens(document);
  for (int64_t index = 0; index < rows(); ++index) row(index);
  for (uint64_t i = 0; i < meta_.tokens; ++i) {
    const int64_t id = meta_.token_bytes == 2 ? tokens_.as<uint16_t>()[i] : tokens_.as<uint32_t>()[i];
    if (id >= meta_.vocabulary_size)
      damaged(kTokensFile,
              fmt::format("token {} has id {}, but the vocabulary has {}", i, id, meta_.vocabulary_size));
  }
}

}  // namespace funicular::data
