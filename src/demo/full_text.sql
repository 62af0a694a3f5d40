-- The full-text indexes beside it: they make one message some thirty frames of the log.
CREATE VIRTUAL TABLE messages_fts USING fts5(content);
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tokenize = 'trigram');
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
  INSERT INTO messages_fts(rowid, content)
  VALUES (new.id, concat_ws(' ', new.content, new.tool_name, new.tool_calls));
END;
CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages BEGIN
  INSERT INTO messages_fts_trigram(rowid, content)
  VALUES (new.id, concat_ws(' ', new.content, new.tool_name, new.tool_calls));
END;
