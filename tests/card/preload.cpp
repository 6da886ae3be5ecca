// Makes a program that loads this library first (LD_PRELOAD) take the stand-in of a card for a GPU.

#include "stand_in.h"

namespace {

__attribute__((constructor)) void plug_in() {
  static const auto* const card = new funicular::card::Card;  // never destroyed
  (void)card;
}

}  // namespace
