# python -m torch.npu.transplant
import sys

from .cli import main

sys.exit(main())
