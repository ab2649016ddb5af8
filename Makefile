# The targets that the guides name; build.sh does the work.
.PHONY: all wheel develop test check check-native train clean distclean

all: wheel

wheel develop test check check-native train clean:
	bash build.sh $@

# Also the virtual environment and the downloads.
distclean: clean
	rm -rf build dist .venv
