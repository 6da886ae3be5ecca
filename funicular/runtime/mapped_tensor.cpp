#include "funicular/runtime/mapped_tensor.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/file.h"

namespace funicular {

at::Tensor map_scratch_tensor(const std::filesystem::path& folder, int64_t size,
                              const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
  if (bytes == 0) return at::zeros({size}, options);
  make_directories(folder);
  std::string name = (folder / "funicular-state-XXXXXX").string();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0)
    throw RunError("offload", "cannot make a file in {}: {}", folder.string(), std::strerror(errno));
  ::unlink(name.c_str());
  const int refused = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  void* const memory =
      refused ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int reason = refused ? refused : errno;
  ::close(descriptor);
  if (memory == MAP_FAILED)
    throw RunError("offload",
                   "{} cannot hold {} bytes of optimiser state: {}; choose a folder on a disk with more room",
                   folder.string(), bytes, std::strerror(reason));
  return at::from_blob(
      memory, {size}, [bytes](void* data) { ::munmap(data, bytes); }, options);
}

}  // namespace funicular
