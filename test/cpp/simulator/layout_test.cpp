// Which memory of a device holds images channels-last, against a model that keeps every sample's order by itself.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "exec/layout/layout.h"

namespace acl_sim {
namespace {

constexpr size_t kItem = sizeof(float);

// Memory of N samples of C x H x W, with what a host should read there.
struct Images {
  Images(int64_t n, int64_t c, int64_t h, int64_t w)
      : dims{n, c, h, w}, plain(static_cast<size_t>(n * c * h * w)), memory(plain.size()) {
    std::iota(plain.begin(), plain.end(), 1.0F);
  }
  size_t sample() const { return plain.size() / static_cast<size_t>(dims[0]); }
  size_t bytes() const { return plain.size() * kItem; }
  void store_rows() { planes_to_rows(plain.data(), memory.data(), dims[0], dims[1], dims[2] * dims[3], kItem); }
  std::vector<float> read(const LayoutMap& map) const {
    std::vector<float> seen(memory.size());
    map.read(memory.data(), bytes(), seen.data());
    return seen;
  }

  std::vector<int64_t> dims;
  std::vector<float> plain, memory;
};

TEST(Layout, RowsAndPlanesAreInverses) {
  for (const auto& [n, c, area] : {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 5}, {3, 17, 33}, {1, 64, 49}}) {
    std::vector<float> planes(static_cast<size_t>(n * c * area)), rows(planes.size()), back(planes.size());
    std::iota(planes.begin(), planes.end(), 0.0F);
    planes_to_rows(planes.data(), rows.data(), n, c, area, kItem);
    rows_to_planes(rows.data(), back.data(), n, c, area, kItem);
    EXPECT_EQ(planes, back);
    EXPECT_EQ(rows[static_cast<size_t>(c > 1 && area > 1 ? 1 : 0)],
              planes[static_cast<size_t>(c > 1 && area > 1 ? area : 0)]);
  }
}

TEST(Layout, WhatIsMarkedIsReadInTheHostsOrder) {
  LayoutMap map;
  Images images(3, 4, 2, 5);
  images.store_rows();
  EXPECT_FALSE(map.any(images.memory.data(), images.bytes()));
  map.mark(images.memory.data(), images.dims, kItem);
  EXPECT_TRUE(map.channels_last(images.memory.data(), images.dims, kItem));
  EXPECT_FALSE(map.channels_last(images.memory.data(), {3, 2, 4, 5}, kItem));
  EXPECT_EQ(images.read(map), images.plain);
  EXPECT_NE(images.memory, images.plain) << "reading changes nothing";
}

TEST(Layout, SamplesOfAMarkAreImagesOfTheirOwn) {
  LayoutMap map;
  Images images(4, 3, 2, 2);
  images.store_rows();
  map.mark(images.memory.data(), images.dims, kItem);
  EXPECT_TRUE(map.channels_last(images.memory.data() + images.sample(), {2, 3, 2, 2}, kItem));
  EXPECT_FALSE(map.channels_last(images.memory.data() + 1, {2, 3, 2, 2}, kItem));
}

TEST(Layout, MakePlainReordersInPlace) {
  LayoutMap map;
  Images images(3, 4, 2, 5);
  images.store_rows();
  map.mark(images.memory.data(), images.dims, kItem);
  map.make_plain(images.memory.data(), images.bytes());
  EXPECT_EQ(images.memory, images.plain);
  EXPECT_FALSE(map.any(images.memory.data(), images.bytes()));
}

TEST(Layout, ForgettingAPartKeepsTheRest) {
  LayoutMap map;
  Images images(4, 3, 2, 3);
  images.store_rows();
  map.mark(images.memory.data(), images.dims, kItem);
  // Half of the second sample up to the end of the third is overwritten by plain numbers.
  const size_t first = images.sample() + images.sample() / 2, end = 3 * images.sample();
  map.forget(images.memory.data() + first, (end - first) * kItem);
  for (size_t i = first; i < end; ++i) images.memory[i] = images.plain[i] = -static_cast<float>(i);
  EXPECT_EQ(images.read(map), images.plain);
  EXPECT_TRUE(map.channels_last(images.memory.data(), {1, 3, 2, 3}, kItem));
  EXPECT_TRUE(map.channels_last(images.memory.data() + end, {1, 3, 2, 3}, kItem));
}

TEST(Layout, RandomWritesAndReads) {
  LayoutMap map;
  Images images(8, 5, 3, 2);
  std::mt19937 random(11);
  images.memory = images.plain;
  float next = 1000;
  for (int step = 0; step < 3000; ++step) {
    switch (random() % 4) {
      case 0: {  // some samples are written channels-last
        const size_t first = random() % 8, count = 1 + random() % (8 - first);
        const size_t at = first * images.sample(), elements = count * images.sample();
        for (size_t i = 0; i < elements; ++i) images.plain[at + i] = next++;
        map.forget(images.memory.data() + at, elements * kItem);
        planes_to_rows(images.plain.data() + at, images.memory.data() + at, static_cast<int64_t>(count), 5, 6, kItem);
        map.mark(images.memory.data() + at, {static_cast<int64_t>(count), 5, 3, 2}, kItem);
        break;
      }
      case 1: {  // any range is written plainly
        const size_t at = random() % images.plain.size(), elements = 1 + random() % (images.plain.size() - at);
        map.forget(images.memory.data() + at, elements * kItem);
        for (size_t i = at; i < at + elements; ++i) images.memory[i] = images.plain[i] = next++;
        break;
      }
      case 2: {  // unknown parts of a range are written
        const size_t at = random() % images.plain.size(), elements = 1 + random() % (images.plain.size() - at);
        map.make_plain(images.memory.data() + at, elements * kItem);
        images.memory[at + elements / 2] = images.plain[at + elements / 2] = next++;
        break;
      }
      default: {
        const size_t at = random() % images.plain.size(), elements = 1 + random() % (images.plain.size() - at);
        std::vector<float> seen(elements);
        map.read(images.memory.data() + at, elements * kItem, seen.data());
        ASSERT_EQ(std::memcmp(seen.data(), images.plain.data() + at, elements * kItem), 0) << "step " << step;
      }
    }
    if (step % 50 == 0) {
      ASSERT_EQ(images.read(map), images.plain) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace acl_sim
