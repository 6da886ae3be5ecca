#include "funicular/augment/journal.h"

#include <fstream>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"

namespace funicular::augment {

namespace {

constexpr const char* kJob = "job.json";
constexpr std::string_view kPart = "part";
constexpr uint64_t kMagic = 0x31'6c'6e'72'75'6f'6a'2eu;

/// The header of a piece; its note and text follow.
struct PieceHeader {
  uint64_t magic = kMagic;
  int64_t piece = 0;
  uint64_t note_size = 0, text_size = 0;
  uint64_t hash = 0;  ///< hash of the three numbers, the note and the text
};

uint64_t hash_of(const PieceHeader& header, std::string_view note, std::string_view text) {
  StreamHash hash;
  const uint64_t numbers[] = {static_cast<uint64_t>(header.piece), header.note_size, header.text_size};
  hash.update(numbers, sizeof numbers);
  hash.update(note.data(), note.size());
  hash.update(text.data(), text.size());
  return hash.digest();
}

/// Whether the folder has only temporary files, which processes leave if they are killed while making or emptying it.
bool holds_only_temporaries(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with(kTemporaryPrefix)) return false;
  return true;
}

}  // namespace

fs::path Journal::folder_of(const fs::path& output) {
  fs::path folder = output;
  return folder += ".parts";
}

std::unique_ptr<FolderLock> Journal::prepare(const fs::path& folder, const Json& identity) {
  const fs::path job = folder / kJob;
  if (fs::exists(folder) && !fs::exists(job) && !holds_only_temporaries(folder))
    throw InputError("augment",
                     "{} is in the way: unfinished work is kept there, and it holds something else; move it",
                     folder.string());
  make_directories(folder);
  auto lock = std::make_unique<FolderLock>(folder, "augment");
  if (fs::exists(job)) {
    if (parse_json_or_null(read_file(job)) == identity) return lock;
    log::warning(
        "{} holds unfinished work with another input, model or options; this run starts from the beginning",
        folder.string());
    remove(folder);
    make_directories(folder);
    lock = std::make_unique<FolderLock>(folder, "augment");
  }
  write_file_atomically(job, json_text(identity, 1) + "\n");
  return lock;
}

void Journal::remove(const fs::path& folder) {
  if (fs::exists(folder)) fs::rename(folder, temporary_name(folder));
  for (const fs::path& aside : temporaries_of(folder)) fs::remove_all(aside);  // of earlier processes, too
}

Journal::Journal(fs::path folder) : folder_(std::move(folder)), own_(temporary_name(folder_ / kPart)) {
  if (!fs::exists(folder_ / kJob))
    throw InputError("augment",
                     "{}: there is no such folder here; ranks on several hosts need a --output that all see",
                     folder_.string());
  for (const fs::path& part : temporaries_of(folder_ / kPart)) scan(part);
}

void Journal::scan(const fs::path& file) {
  const MappedFile mapped(file);
  const std::string_view bytes = mapped.text();
  for (uint64_t at = 0; bytes.size() - at >= sizeof(PieceHeader);) {
    PieceHeader header;
    bytes.copy(reinterpret_cast<char*>(&header), sizeof header, at);
    at += sizeof header;
    const uint64_t left = bytes.size() - at;
    // Stop at the first incomplete piece, as the bytes after it cannot be trusted.
    if (header.magic != kMagic || header.note_size > left || header.text_size > left - header.note_size)
      return;
    const std::string_view note = bytes.substr(at, header.note_size);
    const std::string_view text = bytes.substr(at + header.note_size, header.text_size);
    if (hash_of(header, note, text) != header.hash) return;
    places_[header.piece] = {file, at, header.note_size, header.text_size};
    at += header.note_size + header.text_size;
  }
}

void Journal::add(int64_t piece, const Json& note, std::string_view text) {
  if (!writer_) writer_.emplace(own_, Opening::fresh);
  const std::string written = note.dump();
  PieceHeader header{.piece = piece, .note_size = written.size(), .text_size = text.size()};
  header.hash = hash_of(header, written, text);
  const uint64_t offset = writer_->position() + sizeof header;
  writer_->write(&header, sizeof header);
  writer_->write(written);
  writer_->write(text);
  writer_->flush();
  places_[piece] = {own_, offset, header.note_size, header.text_size};
}

Journal::Piece Journal::read(int64_t piece) const {
  const auto found = places_.find(piece);
  if (found == places_.end())
    throw RunError("augment", "{} lacks piece {}; was it changed by another process?", folder_.string(),
                   piece);
  const Place& place = found->second;
  std::ifstream file(place.file, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(place.offset));
  std::string note(place.note_size, '\0');
  Piece result;
  result.text.resize(place.text_size);
  file.read(note.data(), static_cast<std::streamsize>(note.size()));
  file.read(result.text.data(), static_cast<std::streamsize>(result.text.size()));
  if (!file) throw RunError("augment", "{}: cannot be read again", place.file.string());
  result.note = parse_json(note, place.file.string());
  return result;
}

}  // namespace funicular::augment
