#include "funicular/base/decompressor.h"

#include <fmt/format.h>

#ifdef FUNICULAR_ZLIB
#include <zlib.h>
#endif
#ifdef FUNICULAR_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "funicular/base/error.h"

namespace funicular {

namespace {

using namespace std::string_view_literals;

/// The first bytes of a program's files. The bits `any` of the first byte may have any value.
struct Mark {
  std::string_view program, bytes;
  unsigned char any = 0;
};

constexpr std::array kMarks{
    Mark{"gzip", "\x1F\x8B"sv}, Mark{"zstd", "\x28\xB5\x2F\xFD"sv},
    Mark{"zstd", "\x50\x2A\x4D\x18"sv, 0x0F}};  // a skippable frame, as pzstd writes it
constexpr size_t kUnpackedPiece = 1 << 16;

/// Whether the bytes and the mark agree as far as both go.
bool agrees(std::string_view begin, const Mark& mark) {
  for (size_t i = 0; i < std::min(begin.size(), mark.bytes.size()); ++i) {
    const int any = i == 0 ? mark.any : 0;
    if (((begin[i] ^ mark.bytes[i]) & ~any) != 0) return false;
  }
  return true;
}

}  // namespace

class Decompressor::Codec {
 public:
  /// Result of one call of the library.
  struct Step {
    size_t taken = 0, given = 0;  ///< bytes of the input and of the output
    bool ended = false;           ///< whether a member ended
    std::string problem = {};     ///< in the library's words; "": none
    bool window_too_large = false;
  };
  virtual ~Codec() = default;
  virtual Step step(std::string_view input, std::vector<char>& output) = 0;
};

namespace {

#ifdef FUNICULAR_ZLIB
class Gzip final : public Decompressor::Codec {
 public:
  Gzip() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  Step step(std::string_view input, std::vector<char>& output) override {
    constexpr size_t kMostFed = size_t{1} << 30;  // zlib counts in 32 bits
    const size_t fed = std::min(input.size(), kMostFed);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(fed);
    stream_.next_out = reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = static_cast<uInt>(output.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    Step step{.taken = fed - stream_.avail_in, .given = output.size() - stream_.avail_out};
    if (status == Z_STREAM_END) {
      step.ended = true;
      inflateReset(&stream_);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {  // the latter: more input is needed
      step.problem = stream_.msg ? stream_.msg : "data error";
    }
    return step;
  }

 private:
  z_stream stream_{};
};
#endif

#ifdef FUNICULAR_ZSTD
class Zstd final : public Decompressor::Codec {
 public:
  Zstd() : stream_(ZSTD_createDStream()) {
    if (!stream_) throw std::bad_alloc();
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  Step step(std::string_view input, std::vector<char>& output) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output.data(), output.size(), 0};
    const size_t left = ZSTD_decompressStream(stream_, &out, &in);
    Step step{.taken = in.pos, .given = out.pos, .ended = left == 0};
    if (ZSTD_isError(left)) step.problem = ZSTD_getErrorName(left);
    step.window_too_large = ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge;
    return step;
  }

 private:
  ZSTD_DStream* stream_;
};
#endif

std::unique_ptr<Decompressor::Codec> make_codec(Compression compression) {
#ifdef FUNICULAR_ZLIB
  if (compression == Compression::gzip) return std::make_unique<Gzip>();
#endif
#ifdef FUNICULAR_ZSTD
  if (compression == Compression::zstd) return std::make_unique<Zstd>();
#endif
  throw InputError("file", "this build has no library for compression {}", static_cast<int>(compression));
}

}  // namespace

bool unpacks([[maybe_unused]] std::string_view name) {
#ifdef FUNICULAR_ZLIB
  if (name == "gzip") return true;
#endif
#ifdef FUNICULAR_ZSTD
  if (name == "zstd") return true;
#endif
  return false;
}

bool may_be_compressed(std::string_view begin) {
  return std::any_of(kMarks.begin(), kMarks.end(), [&](const Mark& mark) {
    return begin.size() < mark.bytes.size() && agrees(begin, mark);
  });
}

std::string_view compressor_of(std::string_view begin) {
  for (const Mark& mark : kMarks)
    if (begin.size() >= mark.bytes.size() && agrees(begin, mark)) return mark.program;
  return "";
}

Compression compression_of(std::string_view begin) {
  const std::string_view program = compressor_of(begin);
  if (!unpacks(program)) return Compression::none;
  return program == "gzip" ? Compression::gzip : Compression::zstd;
}

Decompressor::Decompressor(Compression compression, std::string name)
    : compression_(compression),
      name_(std::move(name)),
      codec_(make_codec(compression)),
      output_(kUnpackedPiece) {}

Decompressor::~Decompressor() = default;

std::string_view Decompressor::take() {
  while (more_output_ || !input_.empty()) {
    if (!within_member_ && compression_ == Compression::gzip && input_.starts_with('\0')) {
      const size_t zeros = std::min(input_.find_first_not_of('\0'), input_.size());
      input_.remove_prefix(zeros);
      position_ += zeros;
      continue;
    }
    const Codec::Step step = codec_->step(input_, output_);
    const bool no_member = !within_member_ && step.given == 0 && !step.problem.empty();
    input_.remove_prefix(step.taken);
    position_ += no_member ? 0 : step.taken;
    if (step.window_too_large) refuse_window();
    if (!step.problem.empty()) refuse(step.problem);
    within_member_ = !step.ended;
    more_output_ = within_member_ && step.given == output_.size();
    if (step.given > 0) return {output_.data(), step.given};
  }
  return {};
}

std::string_view Decompressor::program() const {
  return compression_ == Compression::gzip ? "gzip" : "zstd";
}

void Decompressor::refuse(std::string_view problem) const {
  throw InputError(
      "file",
      "{}: expected data as {} writes them from byte {} on, found damage ({}); take the file from "
      "its source again ({} -t tests a file)",
      name_, program(), position_, problem, program());
}

void Decompressor::refuse_window() const {
  throw InputError(
      "file",
      "{}: expected frames of zstd with a window of at most 128 MiB, found a larger one; unpack the "
      "file first: zstd -dc --long=31 < FILE",
      name_);
}

void Decompressor::finish() const {
  if (within_member_)
    throw InputError(
        "file",
        "{}: the file ends at byte {}, within data compressed by {}; take the whole file from its "
        "source again",
        name_, position_, program());
}

}  // namespace funicular
