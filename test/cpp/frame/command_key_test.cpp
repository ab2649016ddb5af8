// What is written into a command's key is read from it again.

#include <ATen/native/npu/frame/command/CommandKey.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace at::native::npu {
namespace {

using Dims = std::vector<int64_t>;

TEST(CommandKey, TellsOperandsInOrder) {
  CommandKey key;
  key.start("Add", 2, 1);
  key.operand(0, ACL_FLOAT, Dims{2, 3}, false, ACL_FORMAT_UNDEFINED);
  key.operand(1, ACL_FLOAT16, Dims{}, true, ACL_FORMAT_UNDEFINED);
  key.operand(2, ACL_FLOAT, Dims{2, 3}, false, ACL_FORMAT_NHWC);
  KeyReader reader(key.words());
  EXPECT_STREQ(reader.name(), "Add");
  EXPECT_EQ(reader.inputs(), 2U);
  EXPECT_EQ(reader.outputs(), 1U);
  const KeyOperand a = reader.next_operand(), b = reader.next_operand(), out = reader.next_operand();
  EXPECT_EQ(a.dtype, ACL_FLOAT);
  EXPECT_EQ(a.dims.vec(), (Dims{2, 3}));
  EXPECT_EQ(a.format, ACL_FORMAT_UNDEFINED);
  EXPECT_FALSE(a.host);
  EXPECT_TRUE(a.strides.empty());
  EXPECT_EQ(b.dtype, ACL_FLOAT16);
  EXPECT_TRUE(b.dims.empty());
  EXPECT_TRUE(b.host);
  EXPECT_EQ(out.dims.vec(), (Dims{2, 3}));
  EXPECT_EQ(out.format, ACL_FORMAT_NHWC);
  KeyAttribute attribute;
  EXPECT_FALSE(reader.next_attribute(attribute));
}

TEST(CommandKey, RepeatsNoDims) {
  CommandKey alike, other;
  for (CommandKey* key : {&alike, &other}) {
    key->start("Add", 2, 1);
    key->operand(0, ACL_FLOAT, Dims{2, 3, 4}, false, ACL_FORMAT_UNDEFINED);
    key->operand(1, ACL_FLOAT, key == &alike ? Dims{2, 3, 4} : Dims{2, 1, 4}, false, ACL_FORMAT_UNDEFINED);
    key->operand(2, ACL_FLOAT, Dims{2, 3, 4}, false, ACL_FORMAT_UNDEFINED);
  }
  EXPECT_EQ(alike.words().size() + 6, other.words().size());
  for (CommandKey* key : {&alike, &other}) {
    KeyReader reader(key->words());
    reader.next_operand();
    EXPECT_EQ(reader.next_operand().dims[1], key == &alike ? 3 : 1);
    EXPECT_EQ(reader.next_operand().dims.vec(), (Dims{2, 3, 4}));
  }
}

TEST(CommandKey, WhatPlainLaunchesWriteIsTheSameKey) {
  CommandKey key;
  key.start("Add", 2, 1);
  for (size_t i = 0; i < 3; ++i) key.operand(i, ACL_FLOAT, Dims{5, 7}, false, ACL_FORMAT_UNDEFINED);
  const uint32_t first = operand_word(ACL_FLOAT, 2, false), further = operand_word(ACL_FLOAT, 2, true);
  const Dims at_once{key.words()[0], count_word(2, 1), pair_word(first, further), pair_word(further, 0), 5, 7};
  EXPECT_EQ(key.words().vec(), at_once);
}

TEST(CommandKey, TellsStridesOfViews) {
  CommandKey key;
  key.start("Add", 2, 1);
  key.operand(0, ACL_FLOAT, Dims{2, 3}, false, ACL_FORMAT_UNDEFINED);
  key.strided_operand(1, ACL_FLOAT, Dims{2, 3}, Dims{1, 2}, ACL_FORMAT_ND);
  key.operand(2, ACL_FLOAT, Dims{2, 3}, false, ACL_FORMAT_UNDEFINED);
  KeyReader reader(key.words());
  EXPECT_TRUE(reader.next_operand().strides.empty());
  const KeyOperand view = reader.next_operand();
  EXPECT_EQ(view.dims.vec(), (Dims{2, 3}));
  EXPECT_EQ(view.strides.vec(), (Dims{1, 2}));
  EXPECT_EQ(view.format, ACL_FORMAT_ND);
  const KeyOperand out = reader.next_operand();
  EXPECT_EQ(out.dims.vec(), (Dims{2, 3}));
  EXPECT_TRUE(out.strides.empty());
}

TEST(CommandKey, AbsentOperandsAndAttributes) {
  CommandKey key;
  key.start("Op", 3, 1);
  key.operand(1, ACL_INT64, Dims{4}, false, ACL_FORMAT_UNDEFINED);
  key.operand(3, ACL_INT64, Dims{127}, false, ACL_FORMAT_UNDEFINED);
  KeyWords words;
  const char* name = "axis";
  words.push_back(reinterpret_cast<int64_t>(name));
  words.push_back('I' | int64_t{16} << 8);
  words.push_back(-1);
  words.push_back(3);
  key.attributes(words);
  KeyReader reader(key.words());
  EXPECT_TRUE(reader.next_operand().absent);
  EXPECT_EQ(reader.next_operand().dims.vec(), (Dims{4}));
  EXPECT_TRUE(reader.next_operand().absent);
  EXPECT_EQ(reader.next_operand().dims.vec(), (Dims{127}));
  KeyAttribute attribute;
  ASSERT_TRUE(reader.next_attribute(attribute));
  EXPECT_STREQ(attribute.name, "axis");
  EXPECT_EQ(attribute.kind, 'I');
  ASSERT_EQ(attribute.bytes, 16U);
  EXPECT_EQ(attribute.value[0], -1);
  EXPECT_EQ(attribute.value[1], 3);
  EXPECT_FALSE(reader.next_attribute(attribute));
}

}  // namespace
}  // namespace at::native::npu
