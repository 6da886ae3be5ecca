#include "funicular/format/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <string>

#include "funicular/base/error.h"

namespace funicular::format {

namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);  // 0x1EDC6F41 reflected
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A protocol buffer under construction: fields of the wire types that events need.
class Message {
 public:
  Message& varint(int field, uint64_t value) {
    tag(field, 0);
    raw_varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) { return fixed(field, 1, value); }
  Message& fixed32(int field, float value) { return fixed(field, 5, value); }
  Message& bytes(int field, std::string_view value) {
    tag(field, 2);
    raw_varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  void tag(int field, int wire) {
    raw_varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
  }
  void raw_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class T>
  Message& fixed(int field, int wire, T value) {
    tag(field, wire);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  std::string bytes_;
};

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// As TensorBoard's own writer names its files; process and number keep writers of the same second apart.
fs::path file_name() {
  static std::atomic<int> number{0};
  char host[HOST_NAME_MAX + 1] = "localhost";
  ::gethostname(host, sizeof host);
  host[HOST_NAME_MAX] = '\0';
  return fmt::format("events.out.tfevents.{:010d}.{}.{}.{}", static_cast<int64_t>(now()), host, ::getpid(),
                     number++);
}

const fs::path& made(const fs::path& folder) {
  make_directories(folder);
  return folder;
}

// Field numbers of tensorboard/compat/proto/{event,summary,tensor}.proto.
Message event(double wall_seconds, int64_t step) {
  Message message;
  message.fixed64(1, wall_seconds < 0 ? now() : wall_seconds);
  if (step != 0) message.varint(2, static_cast<uint64_t>(step));
  return message;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> data) {
  uint32_t value = 0xFFFFFFFFu;
  for (const std::byte byte : data)
    value = (value >> 8) ^ kTable[(value ^ static_cast<uint32_t>(byte)) & 0xFFu];
  return ~value;
}

uint32_t masked_crc32c(std::span<const std::byte> data) {
  const uint32_t value = crc32c(data);
  return ((value >> 15) | (value << 17)) + 0xA282EAD8u;
}

EventWriter::EventWriter(const fs::path& folder) : path_(made(folder) / file_name()), file_(path_) {
  Message version = event(-1, 0);
  record(version.bytes(3, "brain.Event:2").str());
  flush();
}

EventWriter::~EventWriter() {
  try {
    flush();
  } catch (const Error&) {  // curves are no reason to fail a run that is done
  }
}

void EventWriter::scalar(std::string_view tag, double value, int64_t step, double wall_seconds) {
  const Message item = Message().bytes(1, tag).fixed32(2, static_cast<float>(value));
  record(event(wall_seconds, step).bytes(5, Message().bytes(1, item.str()).str()).str());
}

void EventWriter::text(std::string_view tag, std::string_view markdown, int64_t step) {
  constexpr int kString = 7;                                               // DT_STRING
  const Message shape = Message().bytes(2, Message().varint(1, 1).str());  // one dimension of size 1
  const Message tensor = Message().varint(1, kString).bytes(2, shape.str()).bytes(8, markdown);
  const Message metadata =
      Message().bytes(1, Message().bytes(1, "text").str());  // plugin_data { plugin_name }
  const Message item = Message().bytes(1, tag).bytes(8, tensor.str()).bytes(9, metadata.str());
  record(event(-1, step).bytes(5, Message().bytes(1, item.str()).str()).str());
}

void EventWriter::record(const std::string& event) {
  const uint64_t length = event.size();
  std::string frame(sizeof length, '\0');
  std::memcpy(frame.data(), &length, sizeof length);
  const auto append = [&](uint32_t value) {
    frame.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(masked_crc32c(bytes_of(frame)));
  frame += event;
  append(masked_crc32c(bytes_of(event)));
  file_.write(frame);
}

void EventWriter::flush() {
  file_.flush();
}

}  // namespace funicular::format
