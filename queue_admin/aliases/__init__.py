"""queuectl import-aliases: sendmail's aliases(5) as .qmail files in alias/."""
