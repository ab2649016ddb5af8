"""`python -m torch_npu.distributed.run`: torchrun."""

from torch.distributed.run import main, parse_args

__all__ = ["main", "parse_args"]

if __name__ == "__main__":
    main()
