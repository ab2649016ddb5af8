# python -m torch.tools.ms_fmk_transplt.transplant
import sys

from .cli import main

sys.exit(main())
