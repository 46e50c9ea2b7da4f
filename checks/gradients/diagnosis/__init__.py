"""Why a derivative is wrong: causes, each verified by undoing it, and the equation at fault."""
