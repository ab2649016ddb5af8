#pragma once
// What tuning has found out, kept over processes.
//
// Note [Knowledge base]
// One file, knowledge.json, in CANN's place for operators' knowledge: $TUNE_BANK_PATH/<chip>, or without that
// $ASCEND_CACHE_PATH/aoe_data/<chip>, or $HOME/Ascend/latest/data/aoe/custom/op/<chip>. It says for which library,
// which torch, which CPU and how many of its cores it was measured, and for each operator what to choose (Note
// [Choices]). A process reads it once, when it compiles its first operator. A file that is broken, or was measured
// elsewhere, is told in one line of the log and counts for nothing. ENABLE_TUNE_BANK=False leaves it unread. Only the
// tuning tool, torch.npu.aoe, writes it, whole, by renaming.

#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

// Whether a base was read; reads it at the first call.
bool knows_choices();
// Empty for an operator that was not tuned.
std::string known_choice(const std::string& identity);
// As JSON: where the file is, what it has to say about where it was measured, what became of it in this process.
std::string describe_knowledge();

}  // namespace acl_sim
