"""Other tools' files in and out: one file per tool and direction."""
