// Event files: the checksum's known answers, the framing, and the messages byte for byte.

#include "funicular/format/tensorboard.h"

#include <cstring>

#include "scratch.h"

namespace funicular::format {
namespace {

std::span<const std::byte> octets(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// The payloads of a file, after checking both checksums of each frame.
std::vector<std::string> payloads(const fs::path& path) {
  const std::string file = read_file(path);
  std::vector<std::string> result;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    uint32_t length_crc = 0, data_crc = 0;
    std::memcpy(&length, file.data() + at, 8);
    std::memcpy(&length_crc, file.data() + at + 8, 4);
    EXPECT_EQ(length_crc, masked_crc32c(octets(std::string_view(file).substr(at, 8))));
    result.push_back(file.substr(at + 12, length));
    std::memcpy(&data_crc, file.data() + at + 12 + length, 4);
    EXPECT_EQ(data_crc, masked_crc32c(octets(result.back())));
    at += 16 + length;
  }
  return result;
}

TEST(Crc32c, KnownAnswersOfRfc3720) {
  EXPECT_EQ(crc32c(octets(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(octets(std::string(32, '\xFF'))), 0x62A8AB43u);
  std::string rising(32, '\0');
  for (size_t i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  EXPECT_EQ(crc32c(octets(rising)), 0x46DD794Eu);
  EXPECT_EQ(crc32c(octets("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  // (0xE3069283 rotated right by 15) + 0xA282EAD8, modulo 2^32
  EXPECT_EQ(masked_crc32c(octets("123456789")), 0xC78AB0E5u);
}

TEST(EventWriter, FramesHoldTheVersionAndTheScalars) {
  const Scratch scratch;
  EventWriter writer(scratch / "made");
  EXPECT_TRUE(writer.path().filename().string().starts_with("events.out.tfevents."));
  writer.scalar("loss", 0.5, 300, 2.0);
  writer.flush();
  const std::vector<std::string> events = payloads(writer.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NE(events[0].find("\x1A\x0D"
                           "brain.Event:2"),
            std::string::npos);
  // Event { wall_time: 2 (double), step: 300, summary { value { tag: "loss", simple_value: 0.5 } } }
  const std::string expected(
      "\x09\x00\x00\x00\x00\x00\x00\x00\x40\x10\xAC\x02\x2A\x0D\x0A\x0B\x0A\x04loss\x15\x00\x00\x00\x3F", 27);
  EXPECT_EQ(events[1], expected);
}

TEST(EventWriter, TwoWritersOfTheSameSecondHaveTheirOwnFiles) {
  const Scratch scratch;
  const EventWriter one(scratch.path()), two(scratch.path());
  EXPECT_NE(one.path(), two.path());
}

}  // namespace
}  // namespace funicular::format
