# The environment that the porting guide recommends for training on an NPU: `source examples/env.sh`.
# Every line may be overridden afterwards. What they do here is said in README's table of variables, and in
# docs/simulator.md of DYNAMIC_OP; graph dumps, copies and HCCL are a card's, and these lines mean nothing here.

# Operators are handed to the device by a thread of their own. 0 brings an operator's error to the call that issued it.
export TASK_QUEUE_ENABLE=1

# Host logs go to files under $HOME/ascend/log; 1 prints them instead.
export ASCEND_SLOG_PRINT_TO_STDOUT=0

# 0 debug, 1 info, 2 warning, 3 error, 4 none.
export ASCEND_GLOBAL_LOG_LEVEL=3

# Event log lines: 1 on, 0 off.
export ASCEND_GLOBAL_EVENT_ENABLE=0

# What a graph dump holds (a card's compiler reads these two).
export DUMP_GE_GRAPH=2
export DUMP_GRAPH_LEVEL=3

# Copies of strided tensors by a fused operator, and views combined before they are copied.
export PTCOPY_ENABLE=1
export COMBINED_ENABLE=1

# Operators compiled for dynamic shapes, separated by #. Leave it as it is.
export DYNAMIC_OP="ADD#MUL"

# HCCL does not check the list of trusted addresses.
export HCCL_WHITELIST_DISABLE=1
