// How long OpenMP's threads wait for each other before they sleep.
//
// libgomp lets a thread that has nothing to do spin for milliseconds. Where another process has one of the cores, a
// thread that spins takes the time from the one that it waits for: a small model then trained twice as long on two threads
// as on one. A wait that is shorter by far costs next to nothing on an idle machine.
//
// libgomp reads its environment when it is initialised, before any code of a program runs. This library is initialised
// before libgomp, since it comes behind it in the list of libraries that libfunicular.so needs: of libraries that do
// not need each other the loader initialises the one that it found last first, with both of glibc's orders
// (glibc.rtld.dynamic_sort). Were it otherwise, threads would only wait longer; a test asks libgomp what it read.

#include <cstdlib>

namespace {

__attribute__((constructor)) void wait_briefly() {
  // Rounds of a loop that does nothing; libgomp's own default is 300,000. With 200 rounds a step of MiniLM is 4 % slower on an
  // idle machine. Beside another process it is 16 % slower with 300,000 rounds than with 200, and 2 % with 5,000.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv("GOMP_SPINCOUNT", "5000", /*overwrite=*/0);
}

}  // namespace
