#pragma once
// The GPUs that this process sees, and whether this build has kernels for them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace funicular::device {

struct Card {
  int index = 0;
  std::string name;
  int capability = 0;  ///< 90 for 9.0
  int64_t bytes = 0;   ///< of its memory
  std::string bus{};   ///< its place, "0000:1b:00.0"; empty if it is unknown
};

/// The compute capability of a card, 90 for 9.0; 0 where CUDA shows none. A processor whose threads stand for a card
/// has what every tensor core has from Ampere on: 80.
int capability(const at::Device& device);

/// Whether a GPU multiplies bfloat16 by tensor cores: NVIDIA's do from Ampere on (compute capability 8.0).
bool multiplies_bf16(const at::Device& gpu);

/// Makes the card of this number the one that this thread means by "cuda".
void use_card(int index);

/// The most memory of a team (base/team.h) that any card allows.
inline constexpr int64_t kMostSharedBytes = 227 * 1024;

/// How many bytes of memory a team may have where the tensor lies: 64 KiB to 227 KiB, by the card, or fewer in a test.
int64_t most_shared_bytes(const at::Tensor& where);

/// Throws InputError naming the card, the bytes wanted and the bytes allowed if a team may not have so many.
void check_shared_bytes(const at::Tensor& where, int64_t wanted);

/// For tests: as long as it lives, teams have at most so much memory, on the processor and on cards.
class LimitSharedBytes {
 public:
  explicit LimitSharedBytes(int64_t bytes);
  ~LimitSharedBytes();
  LimitSharedBytes(const LimitSharedBytes&) = delete;
  LimitSharedBytes& operator=(const LimitSharedBytes&) = delete;
};

/// The reason why the driver cannot run this build, such as "the NVIDIA driver is for CUDA 12.4, …". Empty if it can,
/// or if there is no driver.
std::string driver_shortfall();
/// As above, for versions as CUDA gives them: 12040 is 12.4. No driver: 0. A driver runs all minor versions of its
/// own and of earlier major versions.
std::string driver_shortfall(int driver, int runtime);

/// The cards that CUDA shows; none where this build has no kernels for GPUs.
std::vector<Card> cards();

/// How a card gets kernels.
enum class CardKernels {
  machine_code,  ///< as nvcc compiled them, for this generation
  portable,      ///< the driver compiles them at the first use, from code for the newest architecture
  none
};

/// The compute capabilities that this build's kernels are compiled for, ascending: 75, 80, …
std::vector<int> built_architectures();

/// Tells what a card of `capability` runs of a build for these architectures, ascending. Machine code runs on cards of
/// its generation (the same tens) that are not older. Portable code is that of the newest architecture, for all newer
/// cards.
CardKernels kernels_for(int capability, const std::vector<int>& architectures);

/// Returns the processors beside the card, by their numbers, as `system`/bus/pci says. Empty if it does not say.
std::vector<int> processors_near(const Card& card, const std::filesystem::path& system = "/sys");

/// Keeps this thread, and all that it will start, on such of its processors as are among `wanted`. If there is none,
/// nothing changes. Returns how many it may use now.
int stay_on(const std::vector<int>& wanted);

/// Returns the card of a rank: the card of its number among the ranks of its host. If the ranks outnumber the cards, they
/// share the cards in turn if `shared`, else this throws InputError.
int card_of_rank(int local_rank, int local_size, int cards, bool shared = false);

}  // namespace funicular::device
